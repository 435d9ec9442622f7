"""Kills, stops and cuts off processes and servers; counts lost jobs and jobs that run twice."""
