-- worked_on: which consumers worked on which queues in the last 14 days. From it, queues that share workers become `pools`.
SELECT DISTINCT topic, "group", consumer FROM tried WHERE consumer IS NOT NULL AND ready > 0 AND :last_hour - hour < 336
