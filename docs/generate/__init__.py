"""What the documentation site has besides the pages of docs/: reference pages made of the code, pages and sources from
elsewhere in the repository, and llms.txt. MkDocs calls hooks.py.
"""
