//! `mcpproxy doctor`: checks gateway, clock, key and servers, and says what to do.

use chrono::{DateTime, Utc};
use clap::Args;
use http::header::DATE;
use serde_json::Value;

use super::client::{ApiClient, ApiQuery};
use super::connection::ApiConnection;
use super::failure::Failure;
use super::output::{self, text};
use super::webhook;

/// Largest accepted clock difference, in seconds. Sessions and expiry dates depend on the clock.
const SKEW_MAX_S: i64 = 5;

/// `mcpproxy doctor`
#[derive(Args)]
pub struct Doctor {
    #[command(flatten)]
    connection: ApiConnection,
}

/// Result of a check.
enum Found {
    Good(String),
    /// Problem, with advice.
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
        let me = client.get(&["status"], &ApiQuery::default()).await?.json()?;
        let (role, tenant) = (text(&me, "role"), text(&me, "tenant"));
        if role == "platform" && !client.is_in_tenant() {
            report(Found::Good("key      of the platform".to_owned()))?;
            let which = "servers  not looked at: name a tenant with --tenant NAME (mcpproxy tenant list)";
            return report(Found::Odd(which.to_owned()));
        }
        report(Found::Good(format!("key      {role} of the tenant {tenant}")))?;
        key(&me).into_iter().chain(consent(&me)).try_for_each(report)?;
        if matches!(&*role, "auditor" | "operator" | "admin" | "platform") {
            policy(&client).await?.into_iter().try_for_each(report)?;
        }
        // others may not see it, and each refused read is recorded
        if matches!(&*role, "admin" | "platform")
            && let Some((said, is_odd)) = webhook::judged(&client).await
        {
            report(if is_odd { Found::Odd(said) } else { Found::Good(said) })?;
        }
        upstreams(&client).await
    }
}

/// Checks what keeps tools from the key: a suspended tenant, its ceiling, its list of tools.
fn key(me: &Value) -> Vec<Found> {
    let mut found = Vec::new();
    if is(me, "suspended") {
        let tenant = text(me, "tenant");
        let resume = format!("tenant   is suspended: its keys are refused; mcpproxy tenant resume {tenant}");
        found.push(Found::Odd(resume));
    }
    // roles that cannot call tools lack none
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

/// Checks which tools `allowed_tools` leaves to the key. A narrow list is no fault; an empty one may be.
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

/// Checks whether there is somebody who can answer what the policy in force asks, and what waits.
fn consent(me: &Value) -> Vec<Found> {
    const ADD: &str = "mcpproxy key add --role approver --owner NAME";
    let number =
        |name: &str| me.get("consent").and_then(|consent| consent.get(name)?.as_u64()).unwrap_or_default();
    let is_own = text(me, "role") == "agent";
    // keys by id and owner, as far as they are named
    let named = |list: &str, keys: u64| {
        let named = me.get("consent").and_then(|consent| consent.get(list)?.as_array());
        let mut names: Vec<String> = named
            .into_iter()
            .flatten()
            .map(|key| format!("{} of {}", text(key, "key_id"), text(key, "owner")))
            .collect();
        if names.is_empty() {
            return String::new();
        }
        let more = keys.saturating_sub(names.len() as u64);
        if more > 0 {
            names.push(format!("and {more} more"));
        }
        format!(" ({})", names.join(", "))
    };
    let calls = |keys: u64, list: &str| match keys {
        _ if is_own => "calls of this key".to_owned(),
        1 => format!("calls of 1 key{}", named(list, keys)),
        _ => format!("calls of {keys} keys{}", named(list, keys)),
    };
    let mut found = Vec::new();
    let (asking, unanswered, unapproved) =
        (number("asking_keys"), number("unanswered_keys"), number("unapproved_keys"));
    if unanswered > 0 {
        found.push(Found::Good(format!(
            "consent  {} may ask a person, and only the bootstrap key may answer; an admin adds another: {ADD}",
            calls(unanswered, "unanswered")
        )));
    }
    if unapproved > 0 {
        found.push(Found::Odd(format!(
            "consent  {} may need the approval of another person, and there is none; an admin whose own calls do not ask \
             adds a key for somebody else: {ADD}",
            calls(unapproved, "unapproved")
        )));
    }
    if asking > 0 && found.is_empty() {
        found.push(Found::Good(format!(
            "consent  {} may ask a person, and somebody may answer",
            calls(asking, "")
        )));
    }
    match number("pending") {
        0 => {}
        pending => found.push(Found::Good(format!(
            "consent  {pending} permission {} for a person: mcpproxy consent list --state pending",
            if pending == 1 { "request waits" } else { "requests wait" }
        ))),
    }
    found
}

/// Fetches what is odd about the tenant's rules; nothing from a gateway of a release without policies.
async fn policy(client: &ApiClient) -> Result<Vec<Found>, Failure> {
    match client.get(&["policy"], &ApiQuery::default()).await {
        Ok(answer) => Ok(warned(&answer.json()?)),
        Err(Failure::Refused(_)) => Ok(Vec::new()),
        Err(failure) => Err(failure),
    }
}

fn warned(policy: &Value) -> Vec<Found> {
    let warnings = policy.get("warnings").and_then(Value::as_array).into_iter().flatten();
    let found = |warning: &str| {
        let warning = output::one_line(warning.trim_end_matches('.'));
        Found::Odd(format!("policy   {warning}; the rules: mcpproxy policy show"))
    };
    warnings.filter_map(Value::as_str).map(found).collect()
}

/// Checks for every server what keeps its tools from agents.
async fn upstreams(client: &ApiClient) -> Result<(), Failure> {
    let servers = match client.list(&["servers"], &ApiQuery::default(), usize::MAX).await {
        Ok(servers) => servers,
        // most keys in IDEs may not list servers
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
        let withheld = match obstacle(&server, &name) {
            None => withheld(client, &name).await?,
            // what keeps the whole server from agents comes first
            Some(_) => Vec::new(),
        };
        judge(&server, &name, &withheld).into_iter().try_for_each(report)?;
    }
    Ok(())
}

/// Lists of what servers offer, named as their routes and commands are, with the nouns of their items.
const LISTS: [(&str, &[&str]); 3] =
    [("tools", &["tool"]), ("prompts", &["prompt"]), ("resources", &["resource", "template"])];

/// Number of a server's tools, prompts, resources or templates that no agent gets.
struct Withheld {
    /// Command that lists them.
    list: &'static str,
    /// Noun of one of them.
    noun: &'static str,
    /// New or changed ones that wait for approval.
    waiting: usize,
    /// Blocked ones.
    blocked: usize,
}

/// Returns what is withheld of a server, by noun.
async fn withheld(client: &ApiClient, name: &str) -> Result<Vec<Withheld>, Failure> {
    let mut withheld = Vec::new();
    for (list, nouns) in LISTS {
        let items = client.list(&["servers", name, list], &ApiQuery::default(), usize::MAX).await?;
        let items: Vec<Value> = items.iter().map(|item| output::parsed(item)).collect();
        withheld.extend(nouns.iter().map(|&noun| {
            // lists with several kinds name the kind of each item
            let is_one = |item: &&Value| nouns.len() == 1 || text(item, "kind") == noun;
            let count = |states: &[&str]| {
                items.iter().filter(is_one).filter(|item| states.contains(&&*text(item, "state"))).count()
            };
            Withheld { list, noun, waiting: count(&["pending", "changed"]), blocked: count(&["blocked"]) }
        }));
    }
    Ok(withheld)
}

/// Returns what keeps all tools of a server from agents, with advice; `None` if nothing does.
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
        .then(|| format!("is in quarantine: an admin, or another operator, releases it with mcpproxy upstream unquarantine {name}"))
}

/// Judges a server: what keeps it from agents, else what is withheld of it.
fn judge(server: &Value, name: &str, withheld: &[Withheld]) -> Vec<Found> {
    let odd = |what: String| Found::Odd(format!("server   '{name}' {what}"));
    if let Some(obstacle) = obstacle(server, name) {
        return vec![odd(obstacle)];
    }
    let mut found = Vec::new();
    for Withheld { list, noun, waiting, blocked } in withheld {
        let has = |n: usize, one: &str, more: &str| {
            let items = if n == 1 { format!("1 {noun} {one}") } else { format!("{n} {noun}s {more}") };
            format!("server   '{name}' has {items}: mcpproxy {list} list {name}")
        };
        if *waiting > 0 {
            found.push(Found::Odd(has(*waiting, "that waits for approval", "that wait for approval")));
        }
        // a person blocked it on purpose
        if *blocked > 0 {
            found.push(Found::Good(has(*blocked, "that is blocked", "that are blocked")));
        }
    }
    if found.is_empty() {
        found.push(Found::Good(format!("server   '{name}' is connected")));
    }
    found
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
            (json!({}), (2, 0), "has 2 tools that wait for approval: mcpproxy tools list up"),
            (json!({}), (0, 1), "ok server   'up' has 1 tool that is blocked: "),
            (json!({"enabled": false}), (0, 0), "upstream enable up"),
            (
                json!({"connection": "disconnected", "last_error": "refused"}),
                (0, 0),
                "not connected: refused",
            ),
            (json!({"connection": "unknown"}), (0, 0), "nobody has reached it"),
            (json!({"quarantined": true}), (0, 0), "unquarantine up"),
        ] {
            let withheld = Withheld { list: "tools", noun: "tool", waiting, blocked };
            let mut found = judge(&server(more), "up", &[withheld]);
            assert_eq!(found.len(), 1, "{want}");
            let said = said(found.remove(0));
            assert!(said.contains(want), "{said}");
        }
    }

    #[test]
    fn every_kind_that_is_withheld_has_a_line() {
        let server = json!({"enabled": true, "quarantined": false, "connection": "connected"});
        let of = |list, noun, waiting, blocked| Withheld { list, noun, waiting, blocked };
        let withheld = [
            of("tools", "tool", 1, 0),
            of("prompts", "prompt", 0, 0),
            of("resources", "resource", 0, 2),
            of("resources", "template", 3, 1),
        ];
        let said: Vec<String> = judge(&server, "up", &withheld).into_iter().map(said).collect();
        assert_eq!(
            said,
            [
                "server   'up' has 1 tool that waits for approval: mcpproxy tools list up",
                "ok server   'up' has 2 resources that are blocked: mcpproxy resources list up",
                "server   'up' has 3 templates that wait for approval: mcpproxy resources list up",
                "ok server   'up' has 1 template that is blocked: mcpproxy resources list up",
            ]
        );
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
        // a gateway that does not report settings
        assert_eq!(of(&json!({"role": "agent", "tenant": "acme"})), "");
    }

    #[test]
    fn asks_without_anybody_to_answer_are_found() {
        let of = |role: &str, [pending, asking, unanswered, unapproved]: [u64; 4]| {
            let figures = json!({"pending": pending, "asking_keys": asking, "unanswered_keys": unanswered,
                "unapproved_keys": unapproved});
            let found = consent(&json!({"role": role, "consent": figures}));
            found.into_iter().map(said).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(of("admin", [0, 0, 0, 0]), "");
        let well = "ok consent  calls of 2 keys may ask a person, and somebody may answer";
        assert_eq!(of("admin", [0, 2, 0, 0]), well);
        let waits =
            "ok consent  1 permission request waits for a person: mcpproxy consent list --state pending";
        assert_eq!(of("approver", [1, 0, 0, 0]), waits);
        let none = "ok consent  calls of this key may ask a person, and only the bootstrap key may answer; an admin adds \
                    another: mcpproxy key add --role approver --owner NAME";
        assert_eq!(of("agent", [0, 1, 1, 0]), none);
        let both = of("auditor", [3, 4, 1, 2]);
        assert_eq!(both.lines().count(), 3, "{both}");
        for want in [
            "ok consent  calls of 1 key may ask a person, and only the bootstrap key may answer",
            "consent  calls of 2 keys may need the approval of another person, and there is none",
            "ok consent  3 permission requests wait",
        ] {
            assert!(both.contains(want), "{both}");
        }
        let keys: Vec<Value> = (1..=5).map(|n| json!({"key_id": format!("k{n}"), "owner": "ana"})).collect();
        let figures = json!({"asking_keys": 9, "unapproved_keys": 7, "unapproved": keys});
        let found = consent(&json!({"role": "admin", "consent": figures}));
        let found = found.into_iter().map(said).collect::<Vec<_>>().join("\n");
        let named = "consent  calls of 7 keys (k1 of ana, k2 of ana, k3 of ana, k4 of ana, k5 of ana, and 2 more) may need";
        assert!(found.starts_with(named), "{found}");
        // a gateway that does not report it, and a key that sees no number
        assert!(consent(&json!({"role": "agent"})).is_empty());
        assert!(
            consent(&json!({"role": "agent", "consent": {"pending": null, "asking_keys": 0}})).is_empty()
        );
    }

    #[test]
    fn warnings_about_rules_are_found() {
        let warning = "Rule 'a': 'pg:*' matches no tool that is known now";
        let said: Vec<String> =
            warned(&json!({"version": 1, "warnings": [warning]})).into_iter().map(said).collect();
        assert_eq!(said, [format!("policy   {warning}; the rules: mcpproxy policy show")]);
        assert!(warned(&json!({"version": 1, "warnings": []})).is_empty());
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
