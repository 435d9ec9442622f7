"""The mover: moves due jobs to the ready streams on time, takes over claims whose TTR has passed, and cleans up."""
