"""`python -m byheart`: the command line."""

from byheart.cli.main import main

if __name__ == "__main__":
    main()
