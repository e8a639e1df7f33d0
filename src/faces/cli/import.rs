//! `mcpproxy import`: servers of an MCP client's file become servers of the gateway.
//!
//! HTTP servers are added. Programs are run only if the gateway's own file names them: their entries are printed.

mod file;
mod variables;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;

use clap::Args;
use http::Method;
use serde_json::{Value, json};

use self::variables::ResolvedText;
use super::client::{ApiClient, ApiQuery};
use super::connection::ApiConnection;
use super::failure::Failure;
use super::input;
use super::output::{self, text};
use super::same_server::{has_url, header_names};
use super::upstream;
use crate::domain::client_file::{ClientFile, FoundPlace, FoundServer, program, valid_name};
use crate::domain::id::is_name;
use crate::domain::server_url::masked;

/// Shortest value of a variable that is looked for in the gateway's answers, in bytes.
const HIDDEN_BYTES_MIN: usize = 4;

/// `mcpproxy import`
#[derive(Args)]
pub struct ImportCommand {
    /// File of an MCP client: mcp.json of Cursor or VS Code, claude_desktop_config.json, .mcp.json or ~/.claude.json,
    /// ~/.codex/config.toml and others; `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Show what would be added without adding it
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connection: ApiConnection,
}

/// Outcome for one server of the file.
enum Verdict {
    /// Server to add: body of the request.
    Add(Value),
    /// Server that is there as the file says.
    Unchanged,
    /// Server that is there and differs, and what to do.
    Differs(String),
    /// Program that the gateway does not offer as a server of this name: its entry.
    Program(String),
    /// Server that cannot be imported, and why.
    LeftOut(String),
}

/// Server of the file under the name that it has in the gateway.
struct Planned {
    name: String,
    line: String,
    verdict: Verdict,
    values: ResolvedServer,
}

impl ImportCommand {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let file = file::read(&self.file)?;
        let resolved = resolve(&file)?;
        let client = self.connection.client()?;
        let there = client.list(&["servers"], &ApiQuery::default(), usize::MAX).await?;
        let there: Vec<Value> = there.iter().map(|item| output::parsed(item)).collect();
        let tenant = text(&client.get(&["status"], &ApiQuery::default()).await?.json()?, "tenant");
        let plan = plan(&file, &resolved, &there, &tenant);
        show(&plan)?;
        for (server, planned) in
            file.servers.iter().zip(&plan).filter(|(server, _)| !server.restrictions.is_empty())
        {
            output::note(&format!(
                "warning: {} keeps tools of {name} from the client, and the gateway offers them all: mcpproxy tools block \
                 {name}:TOOL blocks one, allowed_tools of a key names those that it sees",
                server.restrictions.join(", "),
                name = planned.name
            ));
        }
        for folder in &file.projects {
            output::note(&format!(
                "not imported: servers of the project {}, which are only in this file",
                output::one_line(folder)
            ));
        }
        if self.dry_run {
            return Ok(());
        }
        add(&client, &plan).await
    }
}

/// Values of one server of a file: its address, and its headers by name.
#[derive(Clone, Default)]
struct ResolvedServer {
    url: ResolvedText,
    headers: BTreeMap<String, ResolvedText>,
}

impl ResolvedServer {
    /// Returns a text with the names of variables in place of the values that were taken from them.
    fn hidden(&self, text: &str) -> String {
        let all = self.headers.values().chain([&self.url]).flat_map(|text| &text.taken);
        let all = all.filter(|(_, value)| value.len() >= HIDDEN_BYTES_MIN);
        all.fold(text.to_owned(), |text, (name, value)| text.replace(value, &format!("${{{name}}}")))
    }
}

/// Replaces the references of all headers and addresses.
///
/// # Errors
/// All references that have no value. No request to the gateway has been made then.
fn resolve(file: &ClientFile) -> Result<Vec<ResolvedServer>, Failure> {
    let mut faults = Vec::new();
    let mut value = |place: String, text: &str| match variables::resolved(text, &input::variable) {
        Ok(value) => value,
        Err(fault) => {
            faults.push(format!("{}: {}", output::one_line(&place), fault.0));
            ResolvedText::default()
        }
    };
    let mut resolved = Vec::new();
    for server in &file.servers {
        let mut values = ResolvedServer::default();
        if let FoundPlace::Http { url, headers } = &server.place {
            values.url = value(format!("{}.url", server.name), url);
            for (name, text) in headers {
                values.headers.insert(name.clone(), value(format!("{}.headers.{name}", server.name), text));
            }
        }
        resolved.push(values);
    }
    if faults.is_empty() {
        return Ok(resolved);
    }
    Err(Failure::Usage(format!("{}; nothing was done", faults.join("; "))))
}

fn plan(file: &ClientFile, resolved: &[ResolvedServer], there: &[Value], tenant: &str) -> Vec<Planned> {
    let mut names = HashSet::new();
    let mut plan = Vec::new();
    for (server, values) in file.servers.iter().zip(resolved) {
        let name = valid_name(&server.name);
        let is_new_name = names.insert(name.clone());
        let is = there.iter().find(|is| text(is, "name") == name);
        let verdict = match &server.place {
            FoundPlace::Unusable(why) => Verdict::LeftOut(why.clone()),
            _ if !is_name(&name) => {
                Verdict::LeftOut("has no letter or digit in its name: rename it".to_owned())
            }
            _ if !is_new_name => {
                Verdict::LeftOut(format!("another server of the file is {name} as well: rename it"))
            }
            FoundPlace::Http { url, .. } => match is {
                None => Verdict::Add(body(&name, server, values)),
                Some(is) => http_verdict(&name, url, values, is),
            },
            FoundPlace::Program { argv, env } => match is {
                None => Verdict::Program(program::entry(&name, argv, env, tenant)),
                Some(is) if text(is, "kind") == "stdio" && text(is, "command") == name => Verdict::Unchanged,
                Some(_) => Verdict::Differs(differing_kind(&name)),
            },
        };
        let line = line(&name, server, values, &verdict);
        plan.push(Planned { name, line, verdict, values: values.clone() });
    }
    plan
}

fn body(name: &str, server: &FoundServer, values: &ResolvedServer) -> Value {
    let headers: BTreeMap<&String, &String> =
        values.headers.iter().map(|(name, text)| (name, &text.value)).collect();
    let url = &values.url.value;
    json!({"name": name, "kind": "http", "url": url, "headers": headers, "enabled": !server.is_disabled})
}

/// Compares a server with the one of the file, whose address is `written` there.
fn http_verdict(name: &str, written: &str, values: &ResolvedServer, is: &Value) -> Verdict {
    if text(is, "kind") != "http" {
        return Verdict::Differs(differing_kind(name));
    }
    let listed = is.get("headers").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let (has, wants) = (header_names(listed), header_names(values.headers.keys().map(String::as_str)));
    let mut differences = Vec::new();
    if !has_url(is, &values.url.value) {
        // what is there may hold an earlier value of the variable
        let there = if values.url.taken.is_empty() { text(is, "url") } else { "another".to_owned() };
        differences.push(format!(
            "url {there} → {}; mcpproxy upstream update {name} --address URL",
            masked(written)
        ));
    }
    if has != wants {
        let shown = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let how = if wants.is_empty() { "--no-headers" } else { "--header NAME=-" };
        differences.push(format!(
            "headers {} → {}; mcpproxy upstream update {name} {how}",
            shown(&has),
            shown(&wants)
        ));
    }
    match differences.is_empty() {
        true => Verdict::Unchanged,
        false => Verdict::Differs(differences.join("; ")),
    }
}

fn differing_kind(name: &str) -> String {
    format!("is a server of another kind: rename it in the file, or mcpproxy upstream remove {name}")
}

fn line(name: &str, server: &FoundServer, values: &ResolvedServer, verdict: &Verdict) -> String {
    let known =
        if name == server.name { name.to_owned() } else { format!("{name} ({} in the file)", server.name) };
    let line = match (verdict, &server.place) {
        (Verdict::Add(_), FoundPlace::Http { url, .. }) => {
            let names = values.headers.iter().map(|(name, text)| format!("{name}{}", taken(text)));
            let names: Vec<String> = names.collect();
            let headers =
                if names.is_empty() { String::new() } else { format!(", headers {}", names.join(", ")) };
            let disabled = if server.is_disabled { ", disabled" } else { "" };
            format!("+ {known}: {}{}{headers}{disabled}", masked(url), taken(&values.url))
        }
        (Verdict::Unchanged, FoundPlace::Program { .. }) => {
            format!(
                "= {known}: a program of this name is a server; whether it is the same one is not compared"
            )
        }
        (Verdict::Add(_), _) | (Verdict::Unchanged, _) => format!("= {known}"),
        (Verdict::Differs(how), _) => format!("! {known}: left as it is: {how}"),
        (Verdict::Program(_), _) => format!("> {known}: a program, see below"),
        (Verdict::LeftOut(why), _) => format!("- {known}: not imported: {why}"),
    };
    if server.left_out.is_empty() {
        return output::one_line(&line);
    }
    output::one_line(&format!("{line} (not taken: {})", server.left_out.join(", ")))
}

/// Returns the names of the variables that a text has its values from, in brackets.
fn taken(text: &ResolvedText) -> String {
    let names: BTreeSet<&str> = text.taken.iter().map(|(name, _)| &**name).collect();
    if names.is_empty() {
        return String::new();
    }
    format!(" (from {})", names.into_iter().collect::<Vec<_>>().join(", "))
}

/// Prints the plan: a line per server, the numbers, and the entries of programs.
fn show(plan: &[Planned]) -> Result<(), Failure> {
    let count = |is: fn(&Verdict) -> bool| plan.iter().filter(|planned| is(&planned.verdict)).count();
    let added = count(|verdict| matches!(verdict, Verdict::Add(_)));
    let numbers = [
        (added, "to add"),
        (count(|verdict| matches!(verdict, Verdict::Program(_))), "to offer as a program"),
        (count(|verdict| matches!(verdict, Verdict::Unchanged)), "unchanged"),
        (count(|verdict| matches!(verdict, Verdict::Differs(_))), "left as it is"),
        (count(|verdict| matches!(verdict, Verdict::LeftOut(_))), "not imported"),
    ];
    let numbers: Vec<String> = numbers
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| format!("{number} {what}"))
        .collect();
    for planned in plan {
        output::line(&planned.line)?;
    }
    let nothing = if added == 0 { vec!["nothing to change".to_owned()] } else { Vec::new() };
    output::line(&[nothing, numbers].concat().join(", "))?;
    let programs: Vec<(&str, &str)> = plan
        .iter()
        .filter_map(|planned| match &planned.verdict {
            Verdict::Program(entry) => Some((&*planned.name, &**entry)),
            _ => None,
        })
        .collect();
    if programs.is_empty() {
        return Ok(());
    }
    output::line("\nThe gateway runs only programs that its operator names. For the gateway's file:\n")?;
    for (_, entry) in &programs {
        output::line(&output::safe(entry))?;
    }
    output::line(
        "Then, as the platform (the gateway runs with --config), and in the tenant:\n\nmcpproxy reload",
    )?;
    programs
        .iter()
        .try_for_each(|(name, _)| output::line(&format!("mcpproxy upstream add {name} --command {name}")))
}

/// Adds what the plan says. A server that the gateway refuses keeps none of the others from being added.
async fn add(client: &ApiClient, plan: &[Planned]) -> Result<(), Failure> {
    let (mut added, mut failed, mut worst) = (0_usize, 0_usize, None::<Failure>);
    for planned in plan {
        let Verdict::Add(body) = &planned.verdict else { continue };
        match client.send(Method::POST, &["servers"], body.to_string()).await {
            Ok(answer) => {
                let mut server = answer.json()?;
                if let Some(Value::String(error)) = server.get_mut("last_error") {
                    *error = planned.values.hidden(error);
                }
                upstream::warn(&server);
                added += 1;
            }
            Err(failure) => {
                let said = planned.values.hidden(&failure.to_string());
                output::note(&output::one_line(&format!("mcpproxy: {}: {said}", planned.name)));
                failed += 1;
                if worst.as_ref().is_none_or(|worst| worst.code() < failure.code()) {
                    worst = Some(failure);
                }
            }
        }
    }
    if added > 0 {
        output::note(&format!(
            "{added} added: mcpproxy upstream list shows them, mcpproxy doctor what they lack"
        ));
    }
    match worst {
        None => Ok(()),
        Some(worst) => Err(worst.saying(format!("{failed} servers could not be added; the others are"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of the gateway may repeat an address, and with it a value.
    #[test]
    fn values_are_hidden_behind_their_variables() {
        let url = variables::resolved("https://h/${A}/${B}", &|name| Some(format!("s3cret-{name}")));
        let url = url.map_err(|fault| fault.0).unwrap();
        let values = ResolvedServer { url, headers: BTreeMap::new() };
        assert_eq!(values.hidden("no https://h/s3cret-A/s3cret-B"), "no https://h/${A}/${B}");
    }
}
