//! Import of a pasted file of an MCP client: the servers that can be added are, and the page says what came of each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use http::StatusCode;
use serde_json::Value;

use super::add::{NewServerForm, create};
use super::{href_of, import_again};
use crate::domain::client_file::{ClientFile, FoundPlace, FoundServer, program, valid_name};
use crate::domain::id::is_name;
use crate::domain::tenant::Action;
use crate::faces::console::act::{VisitorAct, perform};
use crate::faces::console::nav::{Nav, Section};
use crate::faces::console::page_visit::PageVisit;
use crate::faces::console::text::{LongText, short};
use crate::faces::query::server::last_error;
use crate::gateway::{GatewayError, ServerView};

/// Memory of the page, in bytes: a form has at most 16 KiB.
const PAGE_MEMORY_BYTES: usize = 256 * 1024;
/// Longest sentence about a server, in characters.
const SAYS_CHARS_MAX: usize = 1000;
/// Most servers that are added at once.
const ADDED_MAX: usize = 20;
/// Sign of a variable, whose value only the client of the file knows.
const VARIABLE: &str = "${";

/// Remark on a program: who does what next.
const PROGRAM: &str = "the gateway runs only programs that its own file names: whoever runs the gateway puts the entry below there, and then you \
     add the server at Servers, as kind stdio";

/// Server of the file, and what came of it.
struct ImportLine {
    /// Name in the file.
    name: String,
    /// Page of the server; `None` if there is none.
    href: Option<String>,
    word: &'static str,
    tone: &'static str,
    says: String,
    /// Entry for the gateway's own file; `None` except for a program.
    entry: Option<LongText>,
}

#[derive(Template)]
#[template(path = "imported.html", config = "src/faces/console/askama.toml")]
struct ImportedPage {
    nav: Nav,
    lines: Vec<ImportLine>,
    /// Folders of projects whose servers are not read.
    projects: Vec<String>,
}

/// Fate of a server of the file.
enum Fate {
    /// Server to add, which may hold credentials.
    Add(NewServerForm),
    /// Program that only the gateway's own file can offer: its entry there.
    Program(String),
    /// Server that stays as it is, or is left out, and why.
    Left(&'static str, String),
}

/// Imports a file, and shows what came of each server. A file that cannot be read is shown again.
pub(super) async fn run(visit: PageVisit) -> Response {
    let gateway = Arc::clone(visit.gateway());
    // what has begun goes on when the browser leaves
    let whole = async move {
        let page = Box::pin(imported(&visit)).await;
        match page {
            Ok(page) => page,
            Err(error @ GatewayError::Invalid { .. }) => {
                let page = import_again(&visit, &error).await;
                page.unwrap_or_else(|_| visit.failed(Section::Servers, &error))
            }
            Err(error) => visit.failed(Section::Servers, &error),
        }
    };
    gateway.log.outlive(whole).await
}

async fn imported(visit: &PageVisit) -> Result<Response, GatewayError> {
    if visit.allowed(visit.attempt(), Action::ChangeServers).is_err() {
        // records the refusal
        perform(visit, VisitorAct::new("servers.create", Action::ChangeServers), async { Ok(()) }).await?;
    }
    visit.expect(PAGE_MEMORY_BYTES).await?;
    let wrong =
        |fault: String| GatewayError::invalid("file", format!("The file {fault}; nothing was added."));
    if visit.field("file").trim().is_empty() {
        return Err(wrong("is empty".to_owned()));
    }
    let file = ClientFile::read_json(visit.field("file")).map_err(wrong)?;
    let mut names = BTreeSet::new();
    let (mut lines, mut added) = (Vec::new(), 0);
    for server in &file.servers {
        let name = valid_name(&server.name);
        let is_new_name = names.insert(name.clone());
        let there = match is_name(&name) {
            true => found(visit, &name).await?,
            false => None,
        };
        let fate = match fate(visit, server, (&name, is_new_name), there.as_ref()) {
            Fate::Add(_) if added == ADDED_MAX => {
                Fate::Left("not imported", format!("at most {ADDED_MAX} at once"))
            }
            fate => fate,
        };
        added += usize::from(matches!(fate, Fate::Add(_)));
        lines.push(line(visit, server, &name, fate).await);
    }
    let page = ImportedPage { nav: visit.nav(Section::Servers), lines, projects: file.projects };
    visit.show(StatusCode::OK, &page).await
}

async fn found(visit: &PageVisit, name: &str) -> Result<Option<ServerView>, GatewayError> {
    match visit.gateway().servers.get_server(visit.caller(), name).await {
        Ok(server) => Ok(Some(server)),
        Err(GatewayError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn fate(
    visit: &PageVisit,
    server: &FoundServer,
    (name, is_new_name): (&str, bool),
    there: Option<&ServerView>,
) -> Fate {
    let left = |why: &str| Fate::Left("not imported", why.to_owned());
    match (&server.place, there) {
        (FoundPlace::Unusable(why), _) => left(why),
        _ if !is_name(name) => left("has no letter or digit in its name: rename it"),
        _ if !is_new_name => left("another server of the file has the same name here: rename it"),
        (_, Some(_)) => Fate::Left("left as it is", "a server of this name is there already".to_owned()),
        (FoundPlace::Http { url, headers }, None) => {
            if url.contains(VARIABLE) || headers.values().any(|value| value.contains(VARIABLE)) {
                return left(
                    "refers to variables (${…}), which only your own machine knows: write the values, or use mcpproxy import",
                );
            }
            Fate::Add(new(name, url, headers, server.is_disabled))
        }
        (FoundPlace::Program { argv, env }, None) => {
            Fate::Program(program::entry(name, argv, env, visit.caller().tenant_name()))
        }
    }
}

fn new(name: &str, url: &str, headers: &BTreeMap<String, String>, is_disabled: bool) -> NewServerForm {
    let headers = headers.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str())));
    NewServerForm {
        name: name.to_owned(),
        kind: "http".to_owned(),
        url: Some(url.to_owned()),
        command: None,
        headers: Ok(Some(headers.collect())),
        enabled: Some(!is_disabled),
        auto_approve: None,
    }
}

async fn line(visit: &PageVisit, server: &FoundServer, name: &str, fate: Fate) -> ImportLine {
    let left_out = &server.left_out;
    let restrictions = &server.restrictions;
    let mut line = ImportLine {
        name: server.name.clone(),
        href: None,
        word: "not imported",
        tone: "held",
        says: String::new(),
        entry: None,
    };
    match fate {
        Fate::Add(new) => match create(visit, new).await {
            Ok(made) => {
                (line.word, line.tone) = ("added", "good");
                line.href = Some(href_of(&made.name));
                if !made.enabled {
                    (line.word, line.tone, line.says) = (
                        "added, disabled",
                        "held",
                        "the file says that it is off: enable it on its page".to_owned(),
                    );
                }
                if let Some(error) = last_error(&made) {
                    (line.word, line.tone, line.says) = ("added, not listed", "open", error);
                }
            }
            Err(error) => (line.word, line.tone, line.says) = ("not added", "bad", error.to_string()),
        },
        Fate::Program(entry) => {
            PROGRAM.clone_into(&mut line.says);
            (line.word, line.tone, line.entry) = ("not added: a program", "open", Some(LongText::of(&entry)));
        }
        Fate::Left(word, why) => {
            (line.word, line.says) = (word, why);
            line.href = (word == "left as it is").then(|| href_of(name));
        }
    }
    let mut notes = vec![std::mem::take(&mut line.says)];
    if line.href.is_some() && server.name != name {
        notes.insert(0, format!("is {name} here"));
    }
    if !left_out.is_empty() {
        notes.push(format!("not taken: {}", left_out.join(", ")));
    }
    if !restrictions.is_empty() {
        notes.push(format!("{} kept tools from the client: block them here", restrictions.join(", ")));
    }
    notes.retain(|note| !note.is_empty());
    line.says = short(&notes.join("; "), SAYS_CHARS_MAX);
    line
}
