"""Where the README's figures come from: ``python -m benchmarks``. README.md here tells how each is measured."""
