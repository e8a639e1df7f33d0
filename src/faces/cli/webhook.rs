//! `mcpproxy consent webhook`: where permission requests are told.

use clap::Subcommand;
use http::Method;
use serde_json::{Value, json};

use super::client::{ApiClient, ApiQuery};
use super::failure::Failure;
use super::output::{self, Output, text};
use super::{input, show};
use crate::domain::webhook::WebhookSecret;

/// Path of the webhook.
const PATH: [&str; 2] = ["consent", "webhook"];
/// Bytes of a secret that this command makes.
const SECRET_BYTES: usize = 32;

/// Advice where there is no webhook.
const SET: &str = "to set one: mcpproxy consent webhook set ADDRESS";

/// `mcpproxy consent webhook`
#[derive(Subcommand)]
pub(super) enum WebhookCommand {
    /// Show the webhook, and how its last deliveries went; the secret is never shown
    Show {
        #[command(flatten)]
        output: Output,
    },
    /// Set the webhook, in place of the one before
    Set {
        /// Address of the receiver (--url is where the gateway is)
        address: String,
        /// Secret that signs events: whsec_ and Base64, @FILE, or - for standard input; without, one is made and printed
        /// only this once
        #[arg(long, value_name = "TEXT")]
        secret: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Remove the webhook; events that wait are told nobody
    Remove {
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Send a test event, and say whether the receiver confirmed it
    Test,
}

impl WebhookCommand {
    pub(super) async fn run(self, client: &ApiClient) -> Result<(), Failure> {
        match self {
            WebhookCommand::Show { output } => {
                let answer = client.get(&PATH, &ApiQuery::default()).await?;
                output.thing(&answer.text, |raw| shown(raw).unwrap_or_else(|| show::fields(raw)))
            }
            WebhookCommand::Set { address, secret, output } => {
                let (secret, is_made) = match secret {
                    Some(given) => (input::text("--secret", &given)?.trim().to_owned(), false),
                    None => (make()?, true),
                };
                let body = json!({ "url": address, "secret": secret }).to_string();
                let mut set = client.send(Method::PUT, &PATH, body).await?.json()?;
                if is_made && let Some(members) = set.as_object_mut() {
                    members.insert("secret".to_owned(), secret.into());
                }
                output.thing(&set.to_string(), |_| said(&set))
            }
            WebhookCommand::Remove { yes } => {
                input::confirm(yes, "remove the webhook, with its secret and the events that wait")?;
                client.act(Method::DELETE, &PATH).await.map_err(advised)?;
                output::note("the webhook is removed");
                Ok(())
            }
            WebhookCommand::Test => {
                let tested =
                    client.act(Method::POST, &["consent", "webhook", "test"]).await.map_err(advised)?;
                let tested = tested.json()?;
                match tested.get("delivered") {
                    Some(Value::Bool(true)) => output::line("the receiver confirmed the test event"),
                    _ => Err(Failure::Tool(text(&tested, "error"))),
                }
            }
        }
    }
}

/// Adds advice to the failure of a command that needs a webhook.
fn advised(failure: Failure) -> Failure {
    match failure {
        Failure::NotFound(text) if text.contains("webhook not found") => {
            Failure::NotFound(format!("{text}; {SET}"))
        }
        other => other,
    }
}

/// Returns what `show` prints where there is no webhook; `None` with one.
fn shown(raw: &str) -> Option<String> {
    let webhook: Value = serde_json::from_str(raw).ok()?;
    let is_set = webhook.get("url").is_none_or(Value::is_string);
    (!is_set).then(|| format!("no webhook is set; {SET}"))
}

fn make() -> Result<String, Failure> {
    let mut bytes = [0; SECRET_BYTES];
    let secret = getrandom::fill(&mut bytes).ok().and_then(|()| WebhookSecret::read(&bytes));
    let secret =
        secret.ok_or_else(|| Failure::Usage("no secret could be made: give one with --secret".to_owned()))?;
    Ok(secret.text().to_string())
}

fn said(set: &Value) -> String {
    let mut told = format!(
        "{} is told of permission requests\nto test it: mcpproxy consent webhook test",
        output::one_line(&text(set, "url"))
    );
    if let Some(until) = set.get("previous_until").and_then(Value::as_str) {
        told = format!(
            "{told}\nThe secret before signs events too until {until}; to end that, set the new one again"
        );
    }
    match &*text(set, "secret") {
        "" => told,
        secret => {
            format!(
                "{told}\nsecret: {secret}\nIt is not shown again: give it to the receiver, which verifies events with it"
            )
        }
    }
}

/// Returns what is to be said of the webhook of an administrator's tenant, and whether that is a problem; `None` without a
/// webhook, and for a gateway that has none.
pub(super) async fn judged(client: &ApiClient) -> Option<(String, bool)> {
    let webhook = client.get(&PATH, &ApiQuery::default()).await.ok()?.json().ok()?;
    judge(&webhook)
}

fn judge(webhook: &Value) -> Option<(String, bool)> {
    let url = webhook.get("url")?.as_str()?;
    let waiting = webhook.get("waiting").and_then(Value::as_u64).unwrap_or_default();
    let waiting = match waiting {
        0 => String::new(),
        1 => "; 1 event waits".to_owned(),
        more => format!("; {more} events wait"),
    };
    if webhook.get("failing") == Some(&Value::Bool(true)) {
        let (at, error) = (text(webhook, "last_failure_at"), text(webhook, "last_error"));
        let advice = "once it is repaired: mcpproxy consent webhook test";
        return Some((format!("webhook  {url} failed at {at}: {error}{waiting}; {advice}"), true));
    }
    Some((format!("webhook  {url} is told of permission requests{waiting}"), false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_that_fail_are_found() {
        let failing = json!({"url": "https://a/", "failing": true, "waiting": 2,
            "last_failure_at": "2026-01-31T12:00:00.000Z", "last_error": "the receiver answered HTTP 500"});
        let said = "webhook  https://a/ failed at 2026-01-31T12:00:00.000Z: the receiver answered HTTP 500; 2 events wait; \
                    once it is repaired: mcpproxy consent webhook test";
        assert_eq!(judge(&failing), Some((said.to_owned(), true)));
        let well = json!({"url": "https://a/", "failing": false, "waiting": 0});
        assert_eq!(
            judge(&well),
            Some(("webhook  https://a/ is told of permission requests".to_owned(), false))
        );
        for none in [json!({"url": null, "waiting": 0}), json!({}), json!("x")] {
            assert_eq!(judge(&none), None);
        }
    }

    #[test]
    fn secrets_that_are_made_differ_and_can_be_read() {
        let (one, other) = (make().unwrap(), make().unwrap());
        assert_ne!(one, other);
        assert_eq!(WebhookSecret::parse(&one).unwrap().expose().len(), SECRET_BYTES);
    }
}
