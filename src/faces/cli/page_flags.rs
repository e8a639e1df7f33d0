//! Flags of `upstream add` and `upstream update` for servers of web pages.

use clap::Args;
use serde_json::{Map, Value};

use super::failure::Failure;
use super::input;
use crate::domain::web_page::settings::{Disclosure, PageCookies, PageExecution, PageMethod, PageSource};

/// Settings of a server of web pages.
#[derive(Args)]
pub(super) struct PageFlags {
    /// Source of tools of web pages: wam (the default), webmcp or forms; may be repeated
    #[arg(long = "source", value_name = "SOURCE", value_parser = PageSource::WORDS)]
    sources: Vec<String>,
    /// Searches that find tools of web pages [default: on_request]
    #[arg(long, value_parser = Disclosure::WORDS)]
    disclosure: Option<String>,
    /// Condition under which tools of web pages run [default: ask]
    #[arg(long, value_parser = PageExecution::WORDS)]
    execute: Option<String>,
    /// Take a form that a WAM schema describes only if the page itself permits to fill it in and send it
    /// (wam-policy-output). Use false for pages that describe their forms and say nothing of a policy; what a page forbids stays
    /// forbidden [default: true]
    #[arg(long, value_name = "BOOL")]
    require_wam_policy: Option<bool>,
    /// Method of forms of web pages that become tools: get or post (both unless set); may be repeated
    #[arg(long = "method", value_name = "METHOD", value_parser = PageMethod::WORDS)]
    methods: Vec<String>,
    /// Lifetime of cookies of web pages [default: ephemeral]
    #[arg(long, value_parser = PageCookies::WORDS)]
    cookies: Option<String>,
    /// Put tools of web pages on /mcp/direct, too [default: false]
    #[arg(long, value_name = "BOOL")]
    direct: Option<bool>,
    /// Secret for a field of a web page, as FIELD=VALUE or FIELD=- (read from standard input); may be repeated. Prefer
    /// FIELD=-: other users can read command lines
    #[arg(long = "field-secret", value_name = "FIELD=VALUE")]
    field_secrets: Vec<String>,
}

impl PageFlags {
    /// Adds the settings that are given to a body.
    pub(super) fn add_to(&self, body: &mut Map<String, Value>) -> Result<(), Failure> {
        for (name, words) in [("sources", &self.sources), ("methods", &self.methods)] {
            if !words.is_empty() {
                body.insert(name.to_owned(), words.clone().into());
            }
        }
        let words =
            [("disclosure", &self.disclosure), ("execute", &self.execute), ("cookies", &self.cookies)];
        for (name, word) in words {
            if let Some(word) = word {
                body.insert(name.to_owned(), word.clone().into());
            }
        }
        for (name, flag) in [("require_wam_policy", self.require_wam_policy), ("direct", self.direct)] {
            if let Some(flag) = flag {
                body.insert(name.to_owned(), flag.into());
            }
        }
        if !self.field_secrets.is_empty() {
            let secrets = input::secrets("field-secret", &self.field_secrets)?;
            body.insert("field_secrets".to_owned(), Value::Object(secrets));
        }
        Ok(())
    }
}
