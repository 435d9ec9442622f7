"""The Prometheus metrics: declared here, and what is added to them."""
