//! `mcpproxy doctor issuer`: checks an identity provider, and explains a token of it.

use clap::Args;
use http::Method;
use serde_json::{Value, json};

use crate::faces::cli::client::ApiClient;
use crate::faces::cli::failure::Failure;
use crate::faces::cli::input;
use crate::faces::cli::output::{self, text};

/// `mcpproxy doctor issuer`
#[derive(Args)]
pub(super) struct IssuerCheck {
    /// Name of the issuer
    name: String,
    /// File with an access token to explain, or - for standard input. The gateway does not store it
    #[arg(long, value_name = "FILE")]
    token_file: Option<String>,
}

impl IssuerCheck {
    pub(super) async fn run(self, client: &ApiClient) -> Result<(), Failure> {
        let token = self.token_file.as_deref().map(token).transpose()?;
        let body = token.map_or_else(|| json!({}), |token| json!({ "token": token })).to_string();
        let answer = client.send(Method::POST, &["issuers", &self.name, "check"], body).await?.json()?;
        let checks = answer.get("checks").and_then(Value::as_array);
        let checks = checks.ok_or_else(|| Failure::Unreachable("the answer has no checks".to_owned()))?;
        checks.iter().try_for_each(|check| output::line(&line(check)))
    }
}

/// Reads a token from a file, or from standard input. No error repeats the text.
fn token(file: &str) -> Result<String, Failure> {
    let place = if file == "-" { file.to_owned() } else { format!("@{file}") };
    let text = input::text("--token-file", &place)?;
    match text.trim() {
        "" => Err(Failure::Usage("--token-file has no token".to_owned())),
        token => Ok(token.to_owned()),
    }
}

fn line(check: &Value) -> String {
    let mark = match &*text(check, "result") {
        "ok" => "ok",
        "warn" => "WARN",
        _ => "bad",
    };
    output::one_line(&format!("{mark:<4}  {:<12} {}", text(check, "check"), text(check, "says")))
}
