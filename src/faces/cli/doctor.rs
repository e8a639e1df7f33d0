//! `mcpproxy doctor`: checks gateway, clock, key and servers, and says what to do.

mod issuer;

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use http::header::DATE;
use serde_json::Value;

use super::client::{ApiClient, ApiQuery};
use super::connection::ApiConnection;
use super::failure::Failure;
use super::output::{self, text};
use super::tally::{Meaning, ToolTally};
use super::webhook;

/// Largest accepted clock difference, in seconds. Sessions and expiry dates depend on the clock.
const SKEW_MAX_S: i64 = 5;

/// `mcpproxy doctor`
#[derive(Args)]
pub struct Doctor {
    #[command(subcommand)]
    subject: Option<DoctorSubject>,
    #[command(flatten)]
    connection: ApiConnection,
}

#[derive(Subcommand)]
enum DoctorSubject {
    /// Check an identity provider, and explain a token of it (platform keys)
    Issuer(issuer::IssuerCheck),
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
        if let Some(DoctorSubject::Issuer(check)) = self.subject {
            return check.run(&client).await;
        }
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
        key(&me).into_iter().chain(tools(&me)).chain(consent(&me)).try_for_each(report)?;
        if matches!(&*role, "auditor" | "operator" | "admin" | "platform") {
            policy(&client).await?.into_iter().try_for_each(report)?;
        }
        // others may not see it, and each refused read is recorded
        if matches!(&*role, "admin" | "platform")
            && let Some((said, is_odd)) = webhook::judged(&client).await
        {
            report(if is_odd { Found::Odd(said) } else { Found::Good(said) })?;
        }
        upstreams(&client, &me).await
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

/// Counts the tools of the key, and says what it means that some say nothing about themselves.
fn tools(me: &Value) -> Vec<Found> {
    let Some(tally) = ToolTally::of_status(me).filter(|tally| tally.total > 0) else { return Vec::new() };
    let mut found = vec![Found::Good(format!("tools    {}", tally.line()))];
    found.extend(tally.meaning(me).map(judged));
    found
}

fn judged(meaning: Meaning) -> Found {
    match meaning {
        Meaning::Safe(text) => Found::Good(format!("tools    {text}")),
        Meaning::Open(text) => Found::Odd(format!("tools    {text}")),
    }
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
async fn upstreams(client: &ApiClient, me: &Value) -> Result<(), Failure> {
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
    let mut all = ToolTally::default();
    for server in servers {
        let server: Value = serde_json::from_str(server.get()).unwrap_or_default();
        let name = text(&server, "name");
        let (withheld, tally) = match obstacle(&server, &name) {
            None => withheld(client, &name).await?,
            // what keeps the whole server from agents comes first
            Some(_) => Default::default(),
        };
        all += tally;
        judge(&server, &name, &withheld, &tally).into_iter().try_for_each(report)?;
    }
    // a role without tools is told what its agents have
    let meaning = all.meaning(me).filter(|_| ToolTally::of_status(me).is_none());
    meaning.into_iter().map(judged).try_for_each(report)
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

/// Returns what is withheld of a server, by noun, and the numbers of its tools.
async fn withheld(client: &ApiClient, name: &str) -> Result<(Vec<Withheld>, ToolTally), Failure> {
    let (mut withheld, mut tally) = (Vec::new(), ToolTally::default());
    for (list, nouns) in LISTS {
        let items = client.list(&["servers", name, list], &ApiQuery::default(), usize::MAX).await?;
        let items: Vec<Value> = items.iter().map(|item| output::parsed(item)).collect();
        if list == "tools" {
            tally = ToolTally::of_list(&items);
        }
        withheld.extend(nouns.iter().map(|&noun| {
            // lists with several kinds name the kind of each item
            let is_one = |item: &&Value| nouns.len() == 1 || text(item, "kind") == noun;
            let count = |states: &[&str]| {
                items.iter().filter(is_one).filter(|item| states.contains(&&*text(item, "state"))).count()
            };
            Withheld { list, noun, waiting: count(&["pending", "changed"]), blocked: count(&["blocked"]) }
        }));
    }
    Ok((withheld, tally))
}

/// Part of the error of a server that answered with HTTP status 401 or 403.
const WANTS_LOGIN: &str = "wants credentials or a login";

/// Returns what keeps all tools of a server from agents, with advice; `None` if nothing does.
pub(super) fn obstacle(server: &Value, name: &str) -> Option<String> {
    if !is(server, "enabled") {
        return Some(format!("is disabled: mcpproxy upstream enable {name}"));
    }
    if text(server, "connection") != "connected" {
        let error = text(server, "last_error");
        let why = if error.is_empty() { "nobody has reached it yet".to_owned() } else { error };
        if text(server, "connection") == "login_required" {
            // the error says what to do, for any server
            let how = why.replace("upstream update NAME", &format!("upstream update {name}"));
            return Some(format!("needs its login, for which an operator or admin has to act: {how}"));
        }
        if text(server, "kind") == "http" && why.contains(WANTS_LOGIN) {
            // the error says how to give them, for any server
            let mut how = why.replace("upstream update NAME", &format!("upstream update {name}"));
            if !how.contains("--header") {
                how.push_str(&format!(
                    "; give a header, most often Authorization, with mcpproxy upstream update {name} --header HEADER=- \
                     (it reads the value from standard input; name all headers of the server)"
                ));
            }
            return Some(format!("is not connected: {how}"));
        }
        let advice = match &*text(server, "kind") {
            "stdio" => format!("its log says more: mcpproxy upstream logs {name}"),
            "web_page" => format!("or give other pages with mcpproxy upstream update {name} --page URL"),
            _ => format!("or give another address with mcpproxy upstream update {name} --address URL"),
        };
        return Some(format!(
            "is not connected: {why}; try again with mcpproxy upstream refresh {name}, {advice}"
        ));
    }
    is(server, "quarantined")
        .then(|| format!("is in quarantine: an admin, or another operator, releases it with mcpproxy upstream unquarantine {name}"))
}

/// Judges a server: what keeps it from agents, else what is withheld of it.
fn judge(server: &Value, name: &str, withheld: &[Withheld], tally: &ToolTally) -> Vec<Found> {
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
    if found.is_empty() && tally.total == 0 && text(server, "kind") == "web_page" {
        found.push(odd(format!(
            "is connected, and no form of its pages has become a tool: mcpproxy page report {name} says why"
        )));
    }
    if found.is_empty() {
        let tools = if tally.total > 0 { format!(", {}", tally.line()) } else { String::new() };
        found.push(Found::Good(format!("server   '{name}' is connected{tools}")));
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
        Found::Odd(text) => output::line(&output::safe(&format!("WARN  {text}"))),
    }
}

#[cfg(test)]
mod tests;
