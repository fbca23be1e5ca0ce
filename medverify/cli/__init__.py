"""The command line. Each command has a file; heavy libraries load only when a command needs them."""


def main() -> None:
    """Entry point of the `medverify` command."""
    from medverify.cli.app import app

    app()
