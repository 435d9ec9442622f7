-- include: attempt_row, progress

-- How an attempt counts that was lost with its consumer: its TTR has passed (reclaim), or the consumer sends no heartbeat
-- any more (take_over).
local APART_MS = 10000

-- apart_ms(group_ttr, now): returns for how long jobs that were lost twice in a row are held back at most: four TTRs or
-- 10 s. Also seeds the random numbers: every script starts with the same seed.
local function apart_ms(group_ttr, now)
  math.randomseed(now % 2147483647)
  return math.min(APART_MS, 4 * group_ttr)
end

-- count_crash(s, losses, job, why): counts the attempt in the job's progress as a crash and in losses.taken, adds a row to
-- losses.rows. The next consumer sees how often the job crashed, and buries it if that is too often. A job that was claimed
-- ahead goes back as if it had not been claimed. why: begins the note, which ends with the consumer.
local function count_crash(s, losses, job, why)
  local p = job.progress
  local ahead = is_ahead(p) -- it has not run, as far as is known
  losses.rows[#losses.rows + 1] = attempt_row(s, ahead and 'released' or 'reclaimed', job, '')
  losses.taken = losses.taken + 1
  if ahead then
    p.attempt, p.note = p.attempt - 1, AHEAD .. p.note .. ', which was lost'
    return
  end
  p.crashes, p.note = p.crashes + 1, why .. p.note
end
