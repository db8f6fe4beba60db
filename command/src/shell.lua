-- Written by `job-exec-rs install`; `job-exec-rs uninstall` removes it. Read by flux-shell.

local uri = os.getenv ("FLUX_URI") or ""
local path = uri:match ("^resume://([^?]*)")
if not path then return end

-- flux-shell ends a job some time after its first task has ended, 30 s by default, if it has not heard
-- that the others have. A shell whose broker is away cannot tell: systemd starts a broker again
-- after 30 s (RestartSec= of flux.service), and job-exec-rs waits 120 s for it (exec.peer-timeout).
-- A broker that is not expected to come back has a timeout in its URI.
if shell.options["exit-timeout"] == nil and not uri:match ("timeout=") then
  shell.options["exit-timeout"] = "150s"
end

-- The libflux of a container, of conda or of another prefix has no connector for resume://.
local task_uri = shell.options["task-uri"] or "resume"
if task_uri ~= "local" and task_uri ~= "resume" then
  shell.die ("-o task-uri=" .. tostring (task_uri) .. ": must be local or resume")
end

local function set_environment ()
  local connectors = os.getenv ("FLUX_CONNECTOR_PATH")
  if task_uri == "local" then
    shell.setenv ("FLUX_URI", "local://" .. path)
  elseif connectors then
    -- Only the broker may know where the connector is.
    shell.setenv ("FLUX_CONNECTOR_PATH", connectors, 0)
  end
end
plugin.register {
  name = "job-exec-rs",
  handlers = {{ topic = "shell.init", fn = set_environment }}
}
