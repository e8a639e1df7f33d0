//! Prompts and resources of the server, and what it says when it is asked for them.

use serde_json::{Value, json};
use tokio::sync::watch;

/// What it offers besides tools. `None` is not declared at all.
#[derive(Clone, Debug, Default)]
pub struct Offers {
    /// Definitions, raw.
    pub prompts: Option<Vec<String>>,
    pub resources: Option<Vec<String>>,
    /// Declared with the resources.
    pub templates: Vec<String>,
    pub completes: bool,
    /// True if updates of single resources are announced.
    pub subscribable: bool,
    /// The raw result with which it asks for input before it gives a prompt or a resource.
    pub asks_first: Option<String>,
    /// A method that it refuses.
    pub broken: Option<&'static str>,
    /// Methods whose answers wait until it is true, as they were when they were asked for; `tools/list` as well.
    pub gates: Vec<(&'static str, watch::Receiver<bool>)>,
}

impl Offers {
    /// Prompts of these names.
    pub fn prompts(names: &[&str]) -> Offers {
        let prompts = names.iter().map(|name| json!({ "name": name }).to_string()).collect();
        Offers { prompts: Some(prompts), ..Offers::default() }
    }

    /// Resources at these URIs.
    pub fn resources(uris: &[&str]) -> Offers {
        let resources = uris.iter().map(|uri| json!({ "uri": uri, "name": uri }).to_string()).collect();
        Offers { resources: Some(resources), ..Offers::default() }
    }

    /// Resources at these URIs, whose updates are announced.
    pub fn subscribable(uris: &[&str]) -> Offers {
        Offers { subscribable: true, ..Offers::resources(uris) }
    }

    /// Templates.
    pub fn templates(texts: &[&str]) -> Offers {
        let templates =
            texts.iter().map(|text| json!({ "uriTemplate": text, "name": text }).to_string()).collect();
        Offers { resources: Some(Vec::new()), templates, ..Offers::default() }
    }

    /// The raw result that asks for input, as long as none has come.
    pub(super) fn question(&self, method: &str, params: &str) -> Option<&String> {
        let is_first =
            matches!(method, "prompts/get" | "resources/read") && !params.contains(r#""inputResponses""#);
        self.asks_first.as_ref().filter(|_| is_first)
    }

    /// What is declared, by the names of capabilities.
    pub(super) fn kinds(&self) -> impl Iterator<Item = &'static str> + use<> {
        let kinds = [self.prompts.as_ref().map(|_| "prompts"), self.resources.as_ref().map(|_| "resources")];
        kinds.into_iter().flatten()
    }

    /// Returns once the gates of a method are open.
    pub(super) async fn wait_at_gates(&self, method: &str) {
        for (_, gate) in self.gates.iter().filter(|(held, _)| *held == method) {
            drop(gate.clone().wait_for(|is_open| *is_open).await);
        }
    }

    /// The members of a result, raw, or an error, raw; `None` for a method that it does not have.
    pub(super) async fn answer(&self, method: &str, params: &str) -> Option<Result<String, String>> {
        if self.broken == Some(method) {
            return Some(Err(r#"{"code":-32603,"message":"broken"}"#.to_owned()));
        }
        self.wait_at_gates(method).await;
        let list = |member: &str, items: &[String]| {
            Ok(format!(r#""ttlMs":0,"cacheScope":"public","{member}":[{}]"#, items.join(",")))
        };
        let params: Value = serde_json::from_str(params).unwrap();
        match method {
            "prompts/list" => Some(list("prompts", self.prompts.as_ref()?)),
            "resources/list" => Some(list("resources", self.resources.as_ref()?)),
            "resources/templates/list" => {
                self.resources.as_ref().map(|_| list("resourceTemplates", &self.templates))
            }
            "prompts/get" => {
                let text = json!(params["arguments"].to_string());
                let content = format!(r#"{{"type":"text","text":{text}}}"#);
                Some(Ok(format!(r#""messages":[{{"role":"user","content":{content}}}],"vendor":1.0"#)))
            }
            "resources/read" => Some(read(params["uri"].as_str().unwrap()).await),
            "completion/complete" => {
                Some(Ok(r#""completion":{"values":["one","two"],"total":2}"#.to_owned()))
            }
            _ => None,
        }
    }
}

async fn read(uri: &str) -> Result<String, String> {
    if uri.contains("missing") {
        return Err(r#"{"code":-32002,"message":"Resource not found","data":{"uri":"x"}}"#.to_owned());
    }
    if uri.contains("hang") {
        std::future::pending::<()>().await;
    }
    let uri = json!(uri);
    Ok(format!(
        r#""contents":[{{"uri":{uri},"blob":"AAH/+w==","mimeType":"a/b","x":1.0}}],"cacheScope":"public""#
    ))
}
