-- How a topic's jobs are spread over its shards: '8'; '8<4@VERSION' while jobs may be where they were put among four,
-- VERSION: which this change followed; '8<@VERSION': they no longer are, which a shard keeps as '8'. '0' = it is closed.

-- layout_in(text): returns the number of shards, the earlier ones as ',4,2,', and the version that the last change
-- followed, 0 = none
local function layout_in(text)
  local shards, former, since = string.match(text, '^(%d+)<?([%d,]*)@?(%d*)$')
  return tonumber(shards), ',' .. former .. ',', tonumber(since) or 0
end

-- may_follow(settings, before, after, pool): returns whether the jobs that the shard may have will be found when its layout
-- changes like this. A registry that was lost, and made again by a process that does not know their layout, would never
-- find them. pool = {live=, is_held=}: how many jobs it has, and whether it has jobs, or taken ids that it must not forget.
local function may_follow(settings, before, after, pool)
  local count, earlier, changed_at = layout_in(before)
  local shards, former, since = layout_in(after)
  if shards == 0 then return not pool.is_held and earlier == ',,' end
  if earlier ~= ',,' then
    -- A shard that is no longer used has none left, unless Redis has lost their ends.
    local is_left = tonumber(string.match(settings, ':(%d+)}:settings$')) >= shards
    return since >= changed_at and not (former == ',,' and is_left and pool.live > 0)
  end
  if count == shards or count == 0 then return true end
  if former ~= ',,' then return pool.live == 0 or string.find(former, ',' .. count .. ',', 1, true) ~= nil end
  return pool.live == 0 and count < shards
end
