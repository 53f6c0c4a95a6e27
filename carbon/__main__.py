"""`python -m carbon`, the same as `carbon`."""

from carbon.cli import main

raise SystemExit(main())
