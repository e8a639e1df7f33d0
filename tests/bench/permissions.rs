//! Cost of permissions for calls that nobody is asked about: 500 rules, and 10,000 pending requests of others.

use anyhow::Result;
use serde_json::json;

use crate::gateway::{Api, Gateway};
use crate::load::{Era, Work};
use crate::postgres::Postgres;
use crate::report::table;
use crate::say;
use crate::side::{CLIENTS, COLUMNS, Side};

/// Word that asks for this run.
pub const WORD: &str = "permissions";
/// Turns, of which each side has one slice each: what is looked for is smaller than the machine's noise.
const TURNS: u32 = 12;
/// Most rules of a document.
const RULES: usize = 500;
/// Pending requests, of 500 keys with 20 each.
const PEND: &str = "
    insert into consent_requests (tenant_id, id, principal, owner, server_id, server, tool, operation_type, pin, digest,
        endpoint, risk, signals, action, action_values, is_irreversible, arguments, was_cut, policy_version, assurance,
        options, channels, ttl_s, expires_at)
    select $TENANT, gen_random_uuid(), md5((n / 20)::text)::uuid, 'owner ' || n / 20, md5('up')::uuid, 'up', 'erase',
        'destructive', 'pin', sha256(n::text::bytea), 'mcp', 'high', '{}', 'call', '{}', true, '{}', false, 1, 'client',
        '{allow_once,reject_once}', '{inbox}', 3600, now() + interval '1 hour'
    from generate_series(0, 9999) n";
const UNPEND: &str = "delete from consent_requests where tenant_id = $TENANT";

/// Measures reads of tenants without rules and with them, then reads and writes beside pending requests.
///
/// # Errors
/// A wrong answer, none, or a document that the gateway refuses.
pub async fn run(api: &Api<'_>, gateway: &Gateway, upstream: &str, postgres: &Postgres) -> Result<String> {
    let rule = |n: usize| {
        json!({"id": format!("r{n}"), "effect": "deny", "match": {"tool": format!("*:delete_{n}*")},
            "when": "args.force == true"})
    };
    let rules: Vec<_> = (0..RULES).map(rule).collect();
    let mut doors = Vec::new();
    for (what, mode, rules) in [
        ("none", "observe", json!([])),
        ("none again", "observe", json!([])),
        ("500, `by_risk`", "by_risk", json!(rules)),
    ] {
        let name = format!("rules{}", doors.len());
        let key = api.tenant(&name, "up", upstream).await?;
        api.put(&name, "/policy", &json!({"version": 0, "mode": mode, "rules": rules})).await?;
        doors.push((what, gateway.door(&key)));
    }
    let mut out = String::new();
    let pids = postgres.pids();
    for era in [Era::Handshake, Era::Modern] {
        let mut sides = Vec::new();
        for (what, door) in &doors {
            let side = Side::new(what, door.clone(), gateway.pid());
            side.warm_up(Work::Read, era).await?;
            sides.push(side);
        }
        for turn in 1..=TURNS {
            say(&format!("rules, {era:?}, turn {turn} of {TURNS}"));
            for side in &mut sides {
                side.turn(Work::Read, era, &pids).await?;
            }
        }
        let title = format!("Reads with rules, {CLIENTS} clients, {era:?}");
        table(&mut out, &title, &columns("rules"), &sides.iter_mut().map(Side::cells).collect::<Vec<_>>());
    }
    let tenant = api.tenant_id("rules2").await?;
    for (what, work) in [("Reads", Work::Read), ("Writes", Work::Write)] {
        let Some((_, door)) = doors.last() else { continue };
        let mut sides =
            ["0", "0 again", "10,000"].map(|pending| Side::new(pending, door.clone(), gateway.pid()));
        for turn in 1..=TURNS {
            say(&format!("{what} beside pending requests, turn {turn} of {TURNS}"));
            let [none, again, pending] = &mut sides;
            none.turn(work, Era::Modern, &pids).await?;
            again.turn(work, Era::Modern, &pids).await?;
            postgres.run(PEND, tenant).await?;
            pending.turn(work, Era::Modern, &pids).await?;
            postgres.run(UNPEND, tenant).await?;
        }
        let title = format!("{what} beside pending requests of the tenant, {CLIENTS} clients, Modern");
        table(&mut out, &title, &columns("pending"), &sides.iter_mut().map(Side::cells).collect::<Vec<_>>());
    }
    Ok(out)
}

fn columns(first: &str) -> Vec<&str> {
    std::iter::once(first).chain(COLUMNS).collect()
}
