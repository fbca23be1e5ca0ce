from medverify.cli.demo import quality_line


def test_how_good_a_judge_is_known_to_be() -> None:
    assert "AUROC 0.444" in quality_line("smollm2-135m-instruct")
    for unknown in (quality_line("./my-judge"), quality_line("smollm2-135m-instruct", adapter="./mine")):
        assert "not measured. Do not rely on its verdicts." in unknown
