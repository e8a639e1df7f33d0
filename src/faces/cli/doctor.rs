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
        upstreams(&client).await
    }
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
        let waiting = match is(&server, "enabled") {
            true => waiting(client, &name).await?,
            false => 0,
        };
        report(judge(&server, &name, waiting))?;
    }
    Ok(())
}

/// How many of its tools wait for somebody to look at them.
async fn waiting(client: &Client, name: &str) -> Result<usize, Failure> {
    let tools = client.list(&["servers", name, "tools"], &Query::default(), usize::MAX).await?;
    let waits = |raw: &str| {
        let tool: Value = serde_json::from_str(raw).unwrap_or_default();
        matches!(&*text(&tool, "state"), "pending" | "changed")
    };
    Ok(tools.iter().filter(|tool| waits(tool.get())).count())
}

fn judge(server: &Value, name: &str, waiting: usize) -> Found {
    let odd = |what: String| Found::Odd(format!("server   '{name}' {what}"));
    if !is(server, "enabled") {
        return odd(format!("is disabled: mcpproxy upstream enable {name}"));
    }
    if text(server, "connection") != "connected" {
        let error = text(server, "last_error");
        let why = if error.is_empty() { "nobody has reached it yet".to_owned() } else { error };
        return odd(format!(
            "is not connected: {why}; try again with mcpproxy upstream refresh {name}, or give another address with \
             mcpproxy upstream update {name} --address URL"
        ));
    }
    if is(server, "quarantined") {
        return odd(format!(
            "is in quarantine: an admin releases it with mcpproxy upstream unquarantine {name}"
        ));
    }
    if waiting > 0 {
        return odd(format!("has {waiting} tools that wait for approval: mcpproxy tools list {name}"));
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
        for (more, waiting, want) in [
            (json!({}), 0, "ok server   'up' is connected"),
            (json!({}), 2, "2 tools that wait"),
            (json!({"enabled": false}), 0, "upstream enable up"),
            (json!({"connection": "disconnected", "last_error": "refused"}), 0, "not connected: refused"),
            (json!({"connection": "unknown"}), 0, "nobody has reached it"),
            (json!({"quarantined": true}), 0, "unquarantine up"),
        ] {
            let said = said(judge(&server(more), "up", waiting));
            assert!(said.contains(want), "{said}");
        }
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
