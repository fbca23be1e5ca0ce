"""The list of commands, in the order in which a newcomer meets them."""

import typer

from medverify.cli import (
    attack,
    bench,
    benchmark,
    calibrate,
    compress,
    demo,
    evaluate,
    generate,
    index,
    index_build,
    index_eval,
    inspect,
    keys,
    lexical,
    plan,
    pool,
    rerank,
    retrieve,
    score,
    search,
    serve,
    train,
    verify,
    verl,
    world,
)

app = typer.Typer(
    name="medverify",
    help="Judge medical reasoning: a model thinks, searches the literature and gives a verdict with its evidence.\n\n"
    "Start with `medverify demo`. A research tool, not a medical device.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
config = typer.Typer(help="What is in force, and where it came from.", no_args_is_help=True)
config.command("show")(inspect.show_config)
indexes = typer.Typer(help="Build an index of passages, look into it, check it, measure it.", no_args_is_help=True)
indexes.command("build")(index_build.build)
indexes.command("info")(index.info)
indexes.command("verify")(index.verify)
indexes.command("add-bm25")(lexical.add_bm25)
indexes.command("compress")(compress.compress)
indexes.command("eval")(index_eval.evaluate)
indexes.command("plan")(plan.plan)
indexes.command("bench")(bench.bench)
retrieval = typer.Typer(help=retrieve.HELP, no_args_is_help=True)
retrieval.command("serve")(retrieve.serve)

access = typer.Typer(help=keys.HELP, no_args_is_help=True)
access.command("add")(keys.add)
access.command("list")(keys.list_keys)
access.command("revoke")(keys.revoke)

cluster = typer.Typer(help=verl.HELP, no_args_is_help=True)
cluster.command("filter")(verl.filter_pool)

benchmarks = typer.Typer(
    help="Public benchmarks: what there is, fetch one, compare with a training pool.", no_args_is_help=True
)
benchmarks.command("list")(benchmark.list_benchmarks)
benchmarks.command("show")(benchmark.show)
benchmarks.command("fetch")(benchmark.fetch)
benchmarks.command("overlap")(benchmark.overlap)

app.command()(demo.demo)
app.command()(verify.verify)
app.command()(rerank.rerank)
app.command()(search.search)
app.command()(serve.serve)
app.command()(score.score)
app.command()(calibrate.calibrate)
app.command("eval")(evaluate.evaluate)
app.command()(attack.attack)
app.command()(generate.generate)
app.command()(train.train)
app.command()(world.world)
app.command("swapped-facts")(world.swapped_facts)
app.command()(pool.pool)
app.command()(inspect.models)
app.command()(inspect.doctor)
app.command()(inspect.schema)
app.add_typer(config, name="config")
app.add_typer(indexes, name="index")
app.add_typer(retrieval, name="retrieve")
app.add_typer(benchmarks, name="benchmark")
app.add_typer(cluster, name="verl")
app.add_typer(access, name="keys")
