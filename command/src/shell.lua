-- Written by `job-exec-rs install`; `job-exec-rs uninstall` removes it. Read by flux-shell.
--
-- flux-shell ends a job some time after its first task has ended, 30 s by default, if it has not heard
-- that the others have. A shell whose broker is away cannot tell: systemd starts a broker again
-- after 30 s (RestartSec= of flux.service), and job-exec-rs waits 120 s for it (exec.peer-timeout).
-- A broker that is not expected to come back has a timeout in its URI.
local uri = os.getenv ("FLUX_URI") or ""
if shell.options["exit-timeout"] == nil and uri:match ("^resume:") and not uri:match ("timeout=") then
  shell.options["exit-timeout"] = "150s"
end
