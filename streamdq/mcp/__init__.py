"""streamdq for assistants, by the Model Context Protocol: `streamdq mcp`. Needs ``pip install 'streamdq[mcp]'``."""
