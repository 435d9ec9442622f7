"""streamdq beside other queues: the same workloads for all, judged by one driver."""
