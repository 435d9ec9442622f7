-- include: endings, results

-- report_end(s, job, result): job.group has ended job.id: keeps the result (results.lua), and has those that wait for the job
-- told of it, unless it is done. Every script that ends a job for a group calls it, in the step that ends it. That the
-- job is done is reported once its last group has done it (jobs_leave).
local function report_end(s, job, result)
  keep_result(s, job, result)
  if s.results and waited_for(s, job.id) then hold_results(s, job.id, s.now) end
  local outcome = string.match(result, '^%l+')
  if s.linked and outcome ~= 'done' and outcome ~= 'error' then job_fails(s, job.id, s.ended_as or outcome) end
end
