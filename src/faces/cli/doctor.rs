//! `mcpproxy doctor`: what is wrong between you and your tools, and what to do about it.

use chrono::{DateTime, Utc};
use clap::Args;
use http::header::DATE;
use serde_json::Value;

use super::client::{Client, Query};
use super::connection::Connection;
use super::failure::Failure;
use super::output::{self, text};

/// A clock that differs by more is worth a word: sessions and expiry dates depend on it.
const SKEW_MAX_S: i64 = 5;

/// `mcpproxy doctor`
#[derive(Args)]
pub struct Doctor {
    #[command(flatten)]
    connection: Connection,
}

/// What a look found.
enum Found {
    Good(String),
    /// What is odd, and what to do.
    Odd(String),
}

impl Doctor {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let client = self.connection.client()?;
        let ready = client.probe("readyz").await?;
        let status = ready.status.as_u16();
        report(match (status, ready.text.trim()) {
            (200, "ready") => Found::Good(format!("gateway  {} answers and is ready", client.url())),
            (200, state) => Found::Odd(format!(
                "gateway  {} is {state}: its database has not answered for some seconds; look at Postgres",
                client.url()
            )),
            (503, state) => Found::Odd(format!(
                "gateway  {} is {state}: wait if it starts or stops; if it is stale, look at Postgres",
                client.url()
            )),
            _ => {
                let sentence = format!("{} answers {status} to /readyz: is it a mcpproxy?", client.url());
                return Err(Failure::Unreachable(sentence));
            }
        })?;
        report(clock(ready.headers.get(DATE).and_then(|date| date.to_str().ok()), Utc::now()))?;
        let me = client.get(&["status"], &Query::default()).await?.json()?;
        let (role, tenant) = (text(&me, "role"), text(&me, "tenant"));
        if role == "platform" && !client.is_in_tenant() {
            report(Found::Good("key      of the platform".to_owned()))?;
            let which = "servers  not looked at: name a tenant with --tenant NAME (mcpproxy tenant list)";
            return report(Found::Odd(which.to_owned()));
        }
        report(Found::Good(format!("key      {role} of the tenant {tenant}")))?;
        key(&me).into_iter().try_for_each(report)?;
        upstreams(&client).await
    }
}

/// What keeps tools from the key itself, and from everybody in its tenant.
fn key(me: &Value) -> Vec<Found> {
    let mut found = Vec::new();
    if is(me, "suspended") {
        let tenant = text(me, "tenant");
        let resume = format!("tenant   is suspended: its keys are refused; mcpproxy tenant resume {tenant}");
        found.push(Found::Odd(resume));
    }
    // roles that call no tools have nothing to miss
    let calls = matches!(&*text(me, "role"), "agent" | "operator" | "admin" | "platform");
    let Some(settings) = me.get("settings").filter(|_| calls) else {
        return found;
    };
    let id = text(me, "key_id");
    let how = format!("an admin reads and changes it with mcpproxy key settings {id}").trim_end().to_owned();
    match &*text(settings, "max_operation") {
        "" | "destructive" => {}
        ceiling => {
            found.push(Found::Good(format!("key      has no tools above max_operation, {ceiling}; {how}")));
        }
    }
    found.extend(list(settings, &how));
    found
}

/// What `allowed_tools` leaves of the tools: least rights are no fault, none at all may be.
fn list(settings: &Value, how: &str) -> Option<Found> {
    let own = settings.get("allowed_tools").and_then(Value::as_array).map(Vec::as_slice);
    Some(match (own, &*text(settings, "allowed_tools_from")) {
        (Some([]), _) => Found::Odd(format!("key      has no tools: allowed_tools is []; {how}")),
        (Some(list), _) if !list.iter().any(|glob| glob == "*") => {
            let globs: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
            let globs = globs.join(", ");
            Found::Good(format!("key      has only the tools of allowed_tools, {globs}; {how}"))
        }
        (_, "tenant") => Found::Good(
            "key      has only the tools of its tenant's allowed_tools; an admin reads and changes it with mcpproxy \
             key settings"
                .to_owned(),
        ),
        (_, "deployment") => Found::Good(
            "key      has only the tools of defaults.allowed_tools; the deployment's operator knows them".to_owned(),
        ),
        _ => return None,
    })
}

/// Every server: what keeps its tools from agents.
async fn upstreams(client: &Client) -> Result<(), Failure> {
    let servers = match client.list(&["servers"], &Query::default(), usize::MAX).await {
        Ok(servers) => servers,
        // most keys in IDEs may not
        Err(Failure::NotAuthorised(_)) => {
            return report(Found::Good("servers  not looked at: this key may not see them".to_owned()));
        }
        Err(failure) => return Err(failure),
    };
    if servers.is_empty() {
        return report(Found::Odd(
            "servers  there are none; add one: mcpproxy upstream add NAME URL".to_owned(),
        ));
    }
    for server in servers {
        let server: Value = serde_json::from_str(server.get()).unwrap_or_default();
        let name = text(&server, "name");
        let withheld = match is(&server, "enabled") {
            true => withheld(client, &name).await?,
            false => Withheld::default(),
        };
        report(judge(&server, &name, withheld))?;
    }
    Ok(())
}

/// How many of a server's tools nobody gets.
#[derive(Clone, Copy, Default)]
struct Withheld {
    /// Until somebody looks at them.
    waiting: usize,
    /// Until somebody unblocks them.
    blocked: usize,
}

async fn withheld(client: &Client, name: &str) -> Result<Withheld, Failure> {
    let tools = client.list(&["servers", name, "tools"], &Query::default(), usize::MAX).await?;
    let mut withheld = Withheld::default();
    for tool in tools {
        let tool: Value = serde_json::from_str(tool.get()).unwrap_or_default();
        match &*text(&tool, "state") {
            "pending" | "changed" => withheld.waiting += 1,
            "blocked" => withheld.blocked += 1,
            _ => {}
        }
    }
    Ok(withheld)
}

/// What keeps a whole server's tools from agents, and what to do about it.
pub(super) fn obstacle(server: &Value, name: &str) -> Option<String> {
    if !is(server, "enabled") {
        return Some(format!("is disabled: mcpproxy upstream enable {name}"));
    }
    if text(server, "connection") != "connected" {
        let error = text(server, "last_error");
        let why = if error.is_empty() { "nobody has reached it yet".to_owned() } else { error };
        return Some(format!(
            "is not connected: {why}; try again with mcpproxy upstream refresh {name}, or give another address with \
             mcpproxy upstream update {name} --address URL"
        ));
    }
    is(server, "quarantined")
        .then(|| format!("is in quarantine: an admin releases it with mcpproxy upstream unquarantine {name}"))
}

fn judge(server: &Value, name: &str, withheld: Withheld) -> Found {
    let odd = |what: String| Found::Odd(format!("server   '{name}' {what}"));
    if let Some(obstacle) = obstacle(server, name) {
        return odd(obstacle);
    }
    let tools = [
        (withheld.waiting, "that waits for approval", "that wait for approval"),
        (withheld.blocked, "that is blocked", "that are blocked"),
    ];
    let tools: Vec<String> = tools
        .iter()
        .filter(|(n, ..)| *n > 0)
        .map(|(n, one, more)| if *n == 1 { format!("1 tool {one}") } else { format!("{n} tools {more}") })
        .collect();
    if !tools.is_empty() {
        return odd(format!("has {}: mcpproxy tools list {name}", tools.join(", and ")));
    }
    Found::Good(format!("server   '{name}' is connected"))
}

fn is(server: &Value, name: &str) -> bool {
    server.get(name) == Some(&Value::Bool(true))
}

fn clock(date: Option<&str>, now: DateTime<Utc>) -> Found {
    let Some(there) = date.and_then(|date| DateTime::parse_from_rfc2822(date).ok()) else {
        return Found::Good("clock    not compared: the answer has no date".to_owned());
    };
    let off = (now - there.with_timezone(&Utc)).num_seconds();
    match off.abs() > SKEW_MAX_S {
        true => {
            Found::Odd(format!("clock    this machine is {off} s ahead of the gateway; look at NTP on both"))
        }
        false => Found::Good("clock    agrees with the gateway's".to_owned()),
    }
}

fn report(found: Found) -> Result<(), Failure> {
    match found {
        Found::Good(text) => output::line(&output::safe(&format!("ok    {text}"))),
        Found::Odd(text) => output::line(&output::safe(&format!("LOOK  {text}"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(found: Found) -> String {
        match found {
            Found::Good(text) => format!("ok {text}"),
            Found::Odd(text) => text,
        }
    }

    #[test]
    fn servers_are_judged() {
        let server = |more: Value| {
            let mut server = json!({"enabled": true, "quarantined": false, "connection": "connected"});
            server.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            server
        };
        for (more, (waiting, blocked), want) in [
            (json!({}), (0, 0), "ok server   'up' is connected"),
            (json!({}), (2, 0), "has 2 tools that wait for approval: "),
            (json!({}), (2, 1), "has 2 tools that wait for approval, and 1 tool that is blocked: "),
            (json!({"enabled": false}), (0, 0), "upstream enable up"),
            (
                json!({"connection": "disconnected", "last_error": "refused"}),
                (0, 0),
                "not connected: refused",
            ),
            (json!({"connection": "unknown"}), (0, 0), "nobody has reached it"),
            (json!({"quarantined": true}), (0, 0), "unquarantine up"),
        ] {
            let said = said(judge(&server(more), "up", Withheld { waiting, blocked }));
            assert!(said.contains(want), "{said}");
        }
    }

    #[test]
    fn keys_are_judged() {
        let open = json!({"max_operation": "destructive", "allowed_tools": ["*"]});
        let me = |role: &str, settings: &Value| json!({"role": role, "tenant": "acme", "key_id": "k1", "suspended": false, "settings": settings});
        let narrow = json!({"max_operation": "read", "allowed_tools": ["a:*", "*:list_*"]});
        let of = |me: &Value| key(me).into_iter().map(said).collect::<Vec<_>>().join("\n");
        assert_eq!(of(&me("agent", &open)), "");
        assert_eq!(of(&me("auditor", &narrow)), "");
        let narrowed = of(&me("agent", &narrow));
        for want in [
            "ok key      has no tools above max_operation, read; ",
            "allowed_tools, a:*, *:list_*; ",
            "key settings k1",
        ] {
            assert!(narrowed.contains(want), "{narrowed}");
        }
        assert!(narrowed.lines().all(|line| line.starts_with("ok ")), "{narrowed}");
        for (from, want) in [("tenant", "its tenant's"), ("deployment", "defaults.allowed_tools")] {
            let outer =
                json!({"max_operation": "destructive", "allowed_tools": null, "allowed_tools_from": from});
            let said = of(&me("agent", &outer));
            assert!(said.starts_with("ok ") && said.contains(want), "{said}");
        }
        let nothing = of(&me("agent", &json!({"max_operation": "destructive", "allowed_tools": []})));
        assert!(nothing.starts_with("key      has no tools: allowed_tools is []"), "{nothing}");
        let mut suspended = me("platform", &open);
        suspended["suspended"] = true.into();
        assert!(of(&suspended).contains("tenant resume acme"));
        // of a gateway that tells less
        assert_eq!(of(&json!({"role": "agent", "tenant": "acme"})), "");
    }

    #[test]
    fn clocks_are_compared() {
        let now = DateTime::from_timestamp(1_769_860_800, 0).unwrap();
        for (date, want) in [
            (Some("Sat, 31 Jan 2026 12:00:00 GMT"), "ok clock    agrees"),
            (Some("Sat, 31 Jan 2026 11:59:00 GMT"), "60 s ahead"),
            (Some("Sat, 31 Jan 2026 12:01:00 GMT"), "-60 s ahead"),
            (Some("yesterday"), "not compared"),
            (None, "not compared"),
        ] {
            let said = said(clock(date, now));
            assert!(said.contains(want), "{said}");
        }
    }
}
