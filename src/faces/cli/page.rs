//! `mcpproxy page`: what the forms of a web page would be as tools, without a gateway, and what those of a server are.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use clap::{Args, Subcommand};
use ipnet::IpNet;
use serde_json::Value;

use super::client::ApiQuery;
use super::connection::ApiConnection;
use super::failure::Failure;
use super::output::{self, Output, columns, text};
use crate::domain::web_page::settings::{PageMethod, PageSettings, PageSource};
use crate::upstream::{Egress, PageInspector, native_tls};

/// Largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 2 * 1024 * 1024;
/// Beginning of the error about a server that is there and has no pages.
const NO_REPORT: &str = "page report not found";
/// Address that a file counts as fetched from, unless one is given.
const NOWHERE: &str = "https://page.invalid/";

/// `mcpproxy page`
#[derive(Args)]
pub struct PageCommand {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Fetch a page, or read a file, and show which of its forms would be tools, and why others would not
    Inspect(Inspect),
    /// Show what the gateway found on the pages of a server when it listed them last
    Report(Report),
}

#[derive(Args)]
struct Inspect {
    /// Address of the page, or path of a file with its HTML
    #[arg(value_name = "URL|FILE")]
    page: String,
    /// Source of tools: wam, webmcp or forms; may be repeated [default: all; of upstream add: wam]
    #[arg(long = "source", value_name = "SOURCE", value_parser = PageSource::WORDS)]
    sources: Vec<String>,
    /// Take a form that a WAM schema describes only if the page itself permits to fill it in and send it
    /// (wam-policy-output). Use false for pages that describe their forms and say nothing of a policy; what a page forbids stays
    /// forbidden
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    require_wam_policy: bool,
    /// Method of forms that become tools: get or post; may be repeated [default: both]
    #[arg(long = "method", value_name = "METHOD", value_parser = PageMethod::WORDS)]
    methods: Vec<String>,
    /// Range of addresses that may be connected to although they are private, as egress.allow of a gateway; may be repeated
    #[arg(long, value_name = "RANGE", value_parser = range)]
    allow: Vec<IpNet>,
    /// Address that a file counts as fetched from
    #[arg(long, value_name = "URL", default_value = NOWHERE)]
    base: String,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
struct Report {
    /// Name of the server
    #[arg(value_name = "SERVER")]
    server: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connection: ApiConnection,
}

/// Reads a range of addresses; a single address is one, too.
fn range(text: &str) -> Result<IpNet, String> {
    let one = || text.parse::<IpAddr>().map(IpNet::from);
    text.parse()
        .or_else(|_| one())
        .map_err(|_| "a range is an address such as 127.0.0.1, or 10.0.0.0/8".to_owned())
}

impl PageCommand {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::Inspect(inspect) => inspect.run().await,
            Command::Report(report) => report.run().await,
        }
    }
}

impl Report {
    async fn run(self) -> Result<(), Failure> {
        let path = ["servers", &self.server, "page-report"];
        let answer = self.connection.client()?.get(&path, &ApiQuery::default()).await;
        let answer = answer.map_err(|failure| match failure.to_string().starts_with(NO_REPORT) {
            true => failure.saying(format!(
                "server '{0}' is not of kind web_page, and only those have pages; mcpproxy tools list {0} shows its tools",
                self.server
            )),
            false => failure,
        })?;
        self.output.thing(&answer.text, shown)
    }
}

impl Inspect {
    async fn run(self) -> Result<(), Failure> {
        let settings = self.settings();
        let is_fetched = self.page.contains("://");
        let report = if is_fetched {
            let egress = Arc::new(Egress::new(self.allow.clone(), Vec::new()));
            let tls = native_tls().ok();
            PageInspector::new(egress, tls).fetch(&self.page, &settings).await
        } else {
            PageInspector::read(&file(Path::new(&self.page))?, &self.base, &settings)
        };
        let report =
            report.map_err(|error| Failure::Usage(format!("{} is refused: {}", self.page, error.whole())))?;
        let read: Value = serde_json::from_str(&report).unwrap_or_default();
        match read.pointer("/pages/0/error").and_then(Value::as_str) {
            Some(error) => {
                // the gateway's setting does not hold for a command
                let allow = "; of page inspect, --allow ADDRESS permits it, such as --allow 127.0.0.0/8";
                let how = if error.contains("egress.allow") { allow } else { "" };
                Err(Failure::Tool(format!("{} could not be read: {}{how}", self.page, output::safe(error))))
            }
            None => {
                self.output.thing(&report, shown)?;
                if is_fetched {
                    output::note(&self.how_to_add(&read));
                }
                Ok(())
            }
        }
    }

    /// Returns the command that adds a server with the tools of a report: the sources that they are from are not its defaults.
    fn how_to_add(&self, report: &Value) -> String {
        let forms = report.pointer("/pages/0/forms").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let tools: Vec<&Value> = forms.iter().filter(|form| form["hidden_because"].is_null()).collect();
        if tools.is_empty() {
            return "no form of the page would be a tool".to_owned();
        }
        // a form without a source has single steps, which its policy permits
        let is_of = |source: &PageSource| {
            let is_step = |form: &&Value| form["source"].is_null() && *source == PageSource::Wam;
            tools.iter().any(|form| form["source"] == source.as_str() || is_step(form))
        };
        let used: Vec<PageSource> = PageSource::ALL.into_iter().filter(is_of).collect();
        let mut command = format!("mcpproxy upstream add NAME --page '{}'", self.page);
        if used != PageSettings::default().sources {
            command.extend(used.iter().map(|source| format!(" --source {}", source.as_str())));
        }
        command.extend(self.methods.iter().map(|method| format!(" --method {method}")));
        if !self.require_wam_policy {
            command.push_str(" --require-wam-policy false");
        }
        format!("to add these tools: {command}")
    }

    fn settings(&self) -> PageSettings {
        let all = |given: &[String]| given.is_empty();
        PageSettings {
            sources: match all(&self.sources) {
                true => PageSource::ALL.to_vec(),
                false => self.sources.iter().filter_map(|word| PageSource::parse(word)).collect(),
            },
            methods: match all(&self.methods) {
                true => PageMethod::ALL.to_vec(),
                false => self.methods.iter().filter_map(|word| PageMethod::parse(word)).collect(),
            },
            require_wam_policy: self.require_wam_policy,
            ..PageSettings::default()
        }
    }
}

fn file(path: &Path) -> Result<Vec<u8>, Failure> {
    let refused = |why: String| Failure::Usage(format!("the file {} cannot be read: {why}", path.display()));
    let length = std::fs::metadata(path).map_err(|error| refused(error.to_string()))?.len();
    if length > FILE_BYTES_MAX {
        return Err(refused(format!("it has more than {} MiB", FILE_BYTES_MAX / 1024 / 1024)));
    }
    std::fs::read(path).map_err(|error| refused(error.to_string()))
}

/// Returns a report for people: a line for each page, and a table of its forms.
fn shown(report: &str) -> String {
    const NAMES: [&str; 7] = ["FORM", "TOOL", "SCORE", "SOURCE", "METHOD", "ACTION", "FINDINGS"];
    let report: Value = serde_json::from_str(report).unwrap_or_default();
    let pages = report.get("pages").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if pages.is_empty() {
        return "no page was fetched yet\n".to_owned();
    }
    let mut out = String::new();
    for page in pages {
        let status = match page.get("error").and_then(Value::as_str) {
            Some(error) => error.to_owned(),
            None => text(page, "status"),
        };
        out.push_str(&format!("{}  {}\n", output::safe(&text(page, "url")), output::safe(&status)));
        let forms = page["forms"].as_array().map_or(&[][..], Vec::as_slice);
        if forms.is_empty() {
            out.push_str("no forms\n");
            continue;
        }
        out.push_str(&columns(&NAMES, forms.iter().map(row).collect()));
        out.push('\n');
    }
    out
}

fn row(form: &Value) -> Vec<String> {
    let list = |name: &str, say: fn(&Value) -> String| -> Vec<String> {
        form[name].as_array().into_iter().flatten().map(say).collect()
    };
    let finding = |finding: &Value| match text(finding, "parameter") {
        parameter if parameter.is_empty() => text(finding, "code"),
        parameter => format!("{} ({parameter})", text(finding, "code")),
    };
    let mut remarks = list("findings", finding);
    remarks.extend(list("categories", |word| format!("category {}", word.as_str().unwrap_or_default())));
    let hidden = text(form, "hidden_because");
    if !hidden.is_empty() {
        remarks.push(format!("no tool: {hidden}"));
    }
    vec![
        text(form, "selector"),
        text(form, "tool"),
        text(form, "score"),
        text(form, "source"),
        text(form, "method"),
        text(form, "action"),
        remarks.join(", "),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_is_shown_form_by_form() {
        let report = json!({"pages": [
            {"url": "https://a.example/", "fetched_at": "x", "status": 200, "forms": [
                {"selector": "#s", "tool": "search", "score": 0.9, "source": "wam", "action": "https://a.example/s",
                 "method": "get", "findings": [{"code": "unknown_param", "parameter": "q", "detail": "d"}],
                 "also_sends": [], "categories": ["payment"], "hidden_because": null},
            ]},
            {"url": "https://b.example/", "fetched_at": "x", "status": null, "error": "HTTP status 404", "forms": []},
        ]});
        let shown = shown(&report.to_string());
        for part in
            ["https://a.example/  200", "unknown_param (q), category payment", "HTTP status 404\nno forms"]
        {
            assert!(shown.contains(part), "{shown}");
        }
    }

    #[test]
    fn ranges_are_addresses_too() {
        assert_eq!(range("127.0.0.1").unwrap().prefix_len(), 32);
        assert!(range("10.0.0.0/8").is_ok() && range("x").is_err());
    }
}
