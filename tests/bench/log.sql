-- Millions of records for tests/bench/log.rs: $1 the tenant, $2 how many, over the last seven days. Of each filter there
-- are values that many records have, some, few and none; how often is in the arithmetic: 100003 and 1009 are primes.
insert into activity (tenant_id, started_at, id, replica_id, type, source, server, tool, tool_variant, tier, intent_type,
    intent_declared, status, key_id, owner, client_name, client_version, session_id, request_id, duration_ms,
    upstream_ms, request_bytes, response_bytes, arguments, response, truncated)
select $1, t, (lpad(to_hex((extract(epoch from t) * 1000)::bigint), 12, '0') || left(md5(n::text), 20))::uuid,
    '00000000-0000-0000-0000-000000000001',
    case when n % 100003 = 7 then 'late_outcome' when n % 1009 = 3 then 'admin' when n % 11 = 0 then 'search'
        else 'tool_call' end,
    case when n % 100003 = 8 then 'system' when n % 1009 = 4 then 'cli' when n % 37 = 0 then 'rest' else 'mcp' end,
    case when n % 100003 = 9 then 'few' else 'server' || floor(50 * power(b, 3))::int end,
    case when n % 100003 = 9 then 'few' else 'tool' || floor(500 * power(b, 3))::int end,
    'call_tool_read', case when n % 100003 = 12 then 'destructive' when n % 7 = 1 then 'unknown' else 'read' end,
    case when n % 53 = 0 then 'destructive' when n % 7 = 0 then 'write' else 'read' end, true,
    case when n % 100003 = 10 then 'unknown' when n % 1009 = 5 then 'rejected' when n % 67 = 0 then 'blocked'
        when n % 31 = 0 then 'upstream_error' else 'success' end,
    ('00000000-0000-0000-0001-' || lpad(k::text, 12, '0'))::uuid, 'owner' || k, 'bench', '1.0', 'session' || n / 100,
    case when n % 3 = 0 then 'request' || n else (n % 200 + 1)::text end, a * 200, a * 190, 100, 300,
    '{"path":"' || md5(n::text) || md5(n::text) || '"}', repeat('result text ', 25), false
from (
    select n, date_trunc('milliseconds', now() - interval '7 days' * (1 - n::float8 / $2)) as t, a, b,
        case when n % 100003 = 11 then 999 else floor(200 * power(c, 2))::int end as k
    from (
        select n, (hashint8(n) & 65535) / 65536.0 as a, (hashint8(n + 1000000007) & 65535) / 65536.0 as b,
            (hashint8(n + 2000000011) & 65535) / 65536.0 as c
        from generate_series(1::bigint, $2) n
    ) hashed
) filled
