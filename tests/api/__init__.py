"""What docs/stability.md calls stable, a line for each name. `make api` writes the lines into public.txt."""
