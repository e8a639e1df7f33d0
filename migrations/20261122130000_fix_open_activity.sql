-- open_activity runs as its owner, and its check compares texts: without a search path of its own the operator was
-- looked up in the caller's, and whoever may make an operator anywhere had it run as the owner, before the check.
--
-- A SET clause ends with the function only what it sets itself: synchronous_commit stays as the body sets it, until
-- the commit. Everybody may still execute it: the login that serves may take mcpproxy_system without inheriting from
-- it, so that a grant to the role would not let it in; the check inside decides.
alter function open_activity set search_path = pg_catalog, pg_temp;
