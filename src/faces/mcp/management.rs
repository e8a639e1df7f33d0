//! The management tools: servers, and definitions that wait for a person, as far as a model may manage them. Nothing here
//! approves or releases anything, since an operator's key in an IDE is an agent (behaviour, section 8).

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::domain::json::{self, Member};
use crate::domain::operation::OperationType::{self, Destructive, Read, Write};
use crate::domain::refusal::{Code, Refusal};
use crate::domain::server_kind::ServerKind;
use crate::faces::Faces;
use crate::faces::wire::managed::{ManagedAct, ManagedRequest, NotDone};
use crate::gateway::{Attempt, Caller};

/// Longest unknown operation repeated in an error, in characters.
const SHOWN_CHARS_MAX: usize = 64;

/// Management tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Managing {
    /// `upstream_servers`
    Servers,
    /// `quarantine_security`
    Quarantine,
}

/// Operation of a management tool.
struct Op {
    name: &'static str,
    act: ManagedAct,
    /// Type of the operation, compared with the key's ceiling.
    operation: OperationType,
    /// Arguments that name what the operation is about. All others form the body.
    about: &'static [&'static str],
    /// Arguments that give new values.
    sets: &'static [&'static str],
    /// Description for a model.
    says: &'static str,
}

const fn op(
    name: &'static str,
    act: ManagedAct,
    operation: OperationType,
    about: &'static [&'static str],
    says: &'static str,
) -> Op {
    Op { name, act, operation, about, sets: &[], says }
}

const PAGE: &[&str] = &["limit", "cursor"];
const NAME: &[&str] = &["name"];
const NAME_AND_PAGE: &[&str] = &["name", "limit", "cursor"];
/// Lists of what a server offers, as the routes call them.
const LISTS: [&str; 3] = ["tools", "prompts", "resources"];

const SERVERS: [Op; 9] = [
    op("list", ManagedAct::List, Read, PAGE, "the servers and how they are"),
    op("logs", ManagedAct::Logs, Read, NAME_AND_PAGE, "the newest lines of a server's log"),
    Op {
        sets: &["name", "kind", "url", "command", "headers", "enabled", "limits"],
        ..op("add", ManagedAct::Add, Write, &[], "a server, quarantined until a person releases it")
    },
    Op {
        sets: &["url", "command", "headers", "enabled", "limits", "auto_approve", "version"],
        ..op("update", ManagedAct::Update, Write, NAME, "changes a server, naming the version that was read")
    },
    op("remove", ManagedAct::Remove, Destructive, NAME, "takes a server away with all that is known of it"),
    op("enable", ManagedAct::Enable, Write, NAME, "switches a server on"),
    op("disable", ManagedAct::Disable, Write, NAME, "switches a server off"),
    op("restart", ManagedAct::Restart, Write, NAME, "connects to a server anew and lists it"),
    op("refresh", ManagedAct::Refresh, Write, NAME, "lists a server now"),
];

const QUARANTINE: [Op; 5] = [
    op(
        "list_quarantined",
        ManagedAct::ListQuarantined,
        Read,
        &[],
        "servers that wait for a person's release",
    ),
    op("inspect", ManagedAct::Inspect, Read, NAME, "a server"),
    op(
        "inspect_tools",
        ManagedAct::InspectTools,
        Read,
        &["name", "list", "limit", "cursor"],
        "its tools, or its prompts or resources, with their state and definitions",
    ),
    op(
        "diff",
        ManagedAct::Diff,
        Read,
        &["name", "tool", "prompt", "uri", "kind"],
        "what differs from the approved definition of a tool, of a prompt, or of a resource, named by uri",
    ),
    op(
        "quarantine",
        ManagedAct::Quarantine,
        Write,
        NAME,
        "hides a server from agents until a person releases it",
    ),
];

impl Managing {
    const ALL: [Managing; 2] = [Managing::Servers, Managing::Quarantine];

    pub(super) fn name(self) -> &'static str {
        match self {
            Managing::Servers => "upstream_servers",
            Managing::Quarantine => "quarantine_security",
        }
    }

    /// Returns the management tool of this name.
    pub(super) fn named(name: &str) -> Option<Managing> {
        Managing::ALL.into_iter().find(|tool| tool.name() == name)
    }

    fn ops(self) -> &'static [Op] {
        match self {
            Managing::Servers => &SERVERS,
            Managing::Quarantine => &QUARANTINE,
        }
    }

    /// Returns the operations that a key with this ceiling is offered.
    fn offered(self, ceiling: OperationType) -> Vec<&'static Op> {
        self.ops().iter().filter(|op| op.operation <= ceiling).collect()
    }

    /// Returns the definition as listed. Its annotations are those of the most dangerous operation offered.
    fn definition(self, ceiling: OperationType) -> Value {
        let (title, what, never) = match self {
            Managing::Servers => (
                "Manage upstream servers",
                "See and change the servers behind this gateway.",
                "What is added starts quarantined, and so does what was never listed; only a person releases it or \
                 approves what it offers.",
            ),
            Managing::Quarantine => (
                "Look into quarantine",
                "See which servers, tools, prompts and resources wait for a person, and put a server into quarantine.",
                "Nothing is approved or released here: a person does that by the API or the command line.",
            ),
        };
        let offered = self.offered(ceiling);
        let said: Vec<String> = offered.iter().map(|op| format!("{}: {}", op.name, op.says)).collect();
        let mut properties = Map::new();
        let names: Vec<&str> = offered.iter().map(|op| op.name).collect();
        let what_to_do = json!({"type": "string", "enum": names, "description": "What to do"});
        properties.insert("operation".to_owned(), what_to_do);
        for name in offered.iter().flat_map(|op| op.about.iter().chain(op.sets)) {
            properties.insert((*name).to_owned(), property(self, name));
        }
        let worst = offered.iter().map(|op| op.operation).max().unwrap_or(Read);
        json!({
            "name": self.name(),
            "title": title,
            "description": format!("{what} Operations: {}. {never}", said.join("; ")),
            "inputSchema": {"type": "object", "properties": properties, "required": ["operation"]},
            "annotations": {
                "title": title, "readOnlyHint": worst == Read, "destructiveHint": worst == Destructive,
                "openWorldHint": true
            }
        })
    }
}

/// Returns the schema of an argument of a tool.
fn property(tool: Managing, name: &str) -> Value {
    match name {
        "name" => json!({"type": "string", "description": "The server's name"}),
        "tool" => json!({"type": "string", "description": "The tool's own name, without its server's"}),
        "prompt" => {
            json!({"type": "string", "description": "The prompt's own name, without its server's"})
        }
        "uri" => json!({"type": "string", "description": "URI of a resource, or text of a template"}),
        "list" => json!({
            "type": "string", "enum": LISTS,
            "description": "What is listed: tools (default), prompts, or resources with their templates"
        }),
        "limit" => json!({"type": "integer", "minimum": 1, "description": "How many at most"}),
        "cursor" => json!({"type": "string", "description": "next_cursor of the page before"}),
        "kind" if tool == Managing::Quarantine => json!({
            "type": "string", "enum": ["resource", "template"],
            "description": "What the uri is of: a resource (default) or a template"
        }),
        "kind" => json!({"type": "string", "enum": ServerKind::NAMES_OVER_MCP}),
        "url" => json!({"type": "string", "description": "Where it is, for kind http"}),
        "command" => {
            json!({"type": "string", "description": "Which of the deployment's programs, for kind stdio"})
        }
        "headers" => json!({
            "type": "object", "additionalProperties": {"type": "string"},
            "description": "Sent with every request; never read back"
        }),
        "enabled" => json!({"type": "boolean", "description": "Switched on"}),
        "auto_approve" => {
            json!({"type": "boolean", "description": "Can only be switched off here", "enum": [false]})
        }
        "limits" => json!({"type": "object", "description": "Bounds of its own"}),
        _ => json!({"type": "integer", "description": "The version of the server as it was read"}),
    }
}

/// Returns the definitions of the tools for a caller with this ceiling; none without a ceiling.
pub(super) fn definitions(ceiling: Option<OperationType>) -> Vec<Value> {
    let all = |ceiling| Managing::ALL.into_iter().map(move |tool| tool.definition(ceiling));
    ceiling.into_iter().flat_map(all).collect()
}

/// Runs the operation that the arguments ask for.
pub(super) async fn run(
    faces: &Arc<Faces>,
    attempt: Attempt,
    tool: Managing,
    arguments: &str,
) -> Result<Bytes, NotDone> {
    faces.gateway.tenants.admit_management(&attempt.caller)?;
    match read(&attempt.caller, tool, arguments) {
        Ok((act, asked)) => faces.manage(attempt, act, asked).await,
        Err(not_done) => {
            faces.refuse_managing(&attempt, tool.name(), arguments, &not_done);
            Err(not_done)
        }
    }
}

/// Parses the arguments into an act and its request, if this caller may request it.
fn read(caller: &Caller, tool: Managing, arguments: &str) -> Result<(ManagedAct, ManagedRequest), NotDone> {
    let members = json::top_level_members(arguments).unwrap_or_default();
    let wanted = text(&members, "operation")?.ok_or_else(|| invalid("operation", "operation is needed"))?;
    let max = caller.settings.max_operation;
    let Some(op) = tool.ops().iter().find(|op| op.name == wanted) else {
        let known = tool.offered(max).iter().map(|op| op.name).collect::<Vec<_>>().join(", ");
        let shown: String = wanted.chars().take(SHOWN_CHARS_MAX).collect();
        return Err(invalid("operation", &format!("unknown operation '{shown}'; known: {known}")));
    };
    if op.operation > max {
        let message = format!("{} is not permitted for this key, whose ceiling is {}", op.name, max.as_str());
        return Err(Refusal::new(Code::OperationNotPermitted, message).into());
    }
    caller.check_scope(op.operation)?;
    let (act, about) = form(op, &members)?;
    let mut asked = ManagedRequest::default();
    for name in about {
        match *name {
            "name" => asked.server = Some(needed(&members, name)?),
            "tool" => asked.tool = Some(needed(&members, name)?),
            "prompt" => asked.prompt = Some(needed(&members, name)?),
            "uri" => asked.params.push((*name, needed(&members, name)?)),
            "list" => {}
            "limit" => asked.params.extend(number(&members, name)?.map(|value| (*name, value))),
            _ => asked.params.extend(text(&members, name)?.map(|value| (*name, value))),
        }
    }
    // arguments of another form of the operation are refused in this one, unless they are null
    let is_read = |name: &&str| about.contains(name) || raw(&members, name).is_none();
    let about: Vec<&str> =
        ["operation"].into_iter().chain(op.about.iter().copied().filter(is_read)).collect();
    asked.body = Bytes::from(json::without_members(arguments, &about).into_owned());
    Ok((act, asked))
}

/// Returns the act of an operation with these arguments, and the arguments that the act is about.
fn form(op: &Op, members: &[Member<'_>]) -> Result<(ManagedAct, &'static [&'static str]), NotDone> {
    let is_given = |name| raw(members, name).is_some();
    match op.act {
        ManagedAct::InspectTools => {
            let act = match text(members, "list")?.as_deref() {
                None | Some("tools") => ManagedAct::InspectTools,
                Some("prompts") => ManagedAct::InspectPrompts,
                Some("resources") => ManagedAct::InspectResources,
                Some(_) => {
                    return Err(invalid("list", &format!("list must be one of {}", LISTS.join(", "))));
                }
            };
            Ok((act, op.about))
        }
        ManagedAct::Diff if is_given("prompt") => Ok((ManagedAct::DiffPrompt, &["name", "prompt"])),
        ManagedAct::Diff if is_given("uri") => Ok((ManagedAct::DiffResource, &["name", "uri", "kind"])),
        ManagedAct::Diff if is_given("tool") => Ok((ManagedAct::Diff, &["name", "tool"])),
        ManagedAct::Diff => Err(invalid("tool", "tool, prompt or uri is needed")),
        act => Ok((act, op.about)),
    }
}

fn invalid(field: &str, message: &str) -> NotDone {
    let field = Some(field.to_owned());
    NotDone { code: "invalid_request", message: message.to_owned(), field, scope_for: None }
}

fn raw<'a>(members: &'a [Member<'_>], name: &str) -> Option<&'a str> {
    members.iter().find(|member| member.name == name).map(|member| member.value).filter(|raw| *raw != "null")
}

fn text(members: &[Member<'_>], name: &str) -> Result<Option<String>, NotDone> {
    let Some(raw) = raw(members, name) else { return Ok(None) };
    let text = serde_json::from_str::<String>(raw).ok().filter(|text| !text.contains('\0'));
    text.map(Some).ok_or_else(|| invalid(name, &format!("{name} must be a string")))
}

fn needed(members: &[Member<'_>], name: &str) -> Result<String, NotDone> {
    let text = text(members, name)?.filter(|text| !text.is_empty());
    text.ok_or_else(|| invalid(name, &format!("{name} is needed")))
}

/// Reads a whole number, as the text of a parameter. JSON schemas take 5.0 for the integer 5.
fn number(members: &[Member<'_>], name: &str) -> Result<Option<String>, NotDone> {
    let Some(raw) = raw(members, name) else { return Ok(None) };
    let number = raw.parse::<f64>().ok().filter(|number| number.fract() == 0.0 && number.is_finite());
    number
        .map(|number| Some(number.to_string()))
        .ok_or_else(|| invalid(name, &format!("{name} must be a whole number")))
}
