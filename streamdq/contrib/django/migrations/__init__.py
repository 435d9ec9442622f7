"""No table: they make the permissions of the operations page."""
