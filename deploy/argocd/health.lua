-- Health of Fairlead's kinds for Argo CD. They follow kstatus: status.observedGeneration, and the conditions Ready,
-- Reconciling and Stalled. docs/gitops.md says how to install it.
local function result(status, message)
  return {status = status, message = message}
end

local function describe(condition)
  if condition.message ~= nil and condition.message ~= "" then
    return condition.message
  end
  return condition.reason or ""
end

if obj.metadata.deletionTimestamp ~= nil then
  return result("Progressing", "it is being deleted")
end
if obj.status == nil or obj.status.conditions == nil then
  return result("Progressing", "waiting for the first reconcile")
end
local observed = obj.status.observedGeneration
if observed ~= nil and obj.metadata.generation ~= nil and observed ~= obj.metadata.generation then
  return result("Progressing", "the last change has not been reconciled yet")
end

local conditions = {}
for _, condition in ipairs(obj.status.conditions) do
  conditions[condition.type] = condition
end
local ready, stalled = conditions.Ready, conditions.Stalled
if stalled ~= nil and stalled.status == "True" then
  return result("Degraded", describe(stalled))
end
if ready == nil then
  return result("Progressing", "it has not reported whether it is ready")
end
if ready.status == "True" then
  return result("Healthy", describe(ready))
end
if ready.reason == "Degraded" then
  return result("Degraded", describe(ready))
end
local rests = obj.status.phase == "Sleeping" or ready.reason == "Stopped" or ready.reason == "NotStarted"
if rests and conditions.Reconciling == nil then
  return result("Suspended", describe(ready))
end
return result("Progressing", describe(ready))
