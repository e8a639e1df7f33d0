//! `mcpproxy upstream connect`: logs in at a server in a browser, as the holder of the API key.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::response::Html;
use axum::routing::get;
use clap::Args;
use http::{Method, header};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::timeout;
use url::form_urlencoded;

use super::client::{ApiClient, ApiQuery};
use super::failure::Failure;
use super::output::{self, Column, Output, text};

/// Time for the browser to take its last page.
const LAST_PAGE_WAIT: Duration = Duration::from_millis(300);
/// Longest wait for the browser if the gateway names no time.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// `mcpproxy upstream connect`
#[derive(Args)]
pub(super) struct ConnectFlags {
    /// Name of the server
    name: String,
    /// Have the gateway list the server with this login (operators and admins): until somebody does, nobody sees its tools
    #[arg(long)]
    for_listing: bool,
}

/// List of logins, as the API answers.
#[derive(Deserialize)]
struct Connections {
    items: Vec<Box<RawValue>>,
}

/// Shows the logins at a server.
pub(super) async fn list(client: &ApiClient, name: &str, output: &Output) -> Result<(), Failure> {
    let answer = client.get(&["servers", name, "connections"], &ApiQuery::default()).await?;
    let page: Connections = serde_json::from_str(&answer.text)
        .map_err(|error| Failure::Unreachable(format!("the answer has no list of logins: {error}")))?;
    output.items(&page.items, &COLUMNS)
}

/// Columns of the list of logins at a server.
const COLUMNS: [Column; 5] = [
    ("ID", |login| text(login, "id")),
    ("OF", holder),
    ("STATE", |login| text(login, "state")),
    ("LISTS", |login| {
        if login.get("for_listing") == Some(&Value::Bool(true)) { "yes".to_owned() } else { String::new() }
    }),
    ("LAST ERROR", |login| text(login, "last_error")),
];

/// Returns whose login it is: a key by its name, a person, or the gateway.
fn holder(login: &Value) -> String {
    let name = [text(login, "key_name"), text(login, "owner"), text(login, "principal_id")];
    name.into_iter().find(|name| !name.is_empty()).unwrap_or_else(|| "the gateway".to_owned())
}

/// Parameters that the browser brings, and where its last page is awaited.
type Visit = (Vec<(String, String)>, oneshot::Sender<&'static str>);

/// Ends of the channel that browsers come in by.
type Door = Arc<Mutex<mpsc::Sender<Visit>>>;

impl ConnectFlags {
    pub(super) async fn run(self, client: &ApiClient) -> Result<(), Failure> {
        let unheard = |error: std::io::Error| {
            Failure::Unreachable(format!(
                "no port of 127.0.0.1 is free for the browser to come back to: {error}"
            ))
        };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(unheard)?;
        let port = listener.local_addr().map_err(unheard)?.port();
        // no other page of the machine knows it
        let path = format!("/done/{}", uuid::Uuid::new_v4());
        let body = json!({
            "redirect_uri": format!("http://127.0.0.1:{port}{path}"), "for_listing": self.for_listing,
        });
        let begun =
            client.send(Method::POST, &["servers", &self.name, "connections"], body.to_string()).await?;
        let begun = begun.json()?;
        output::note(&format!(
            "To log in at {} for server {}, open this address in a browser on this machine:\n\n  {}\n",
            text(&begun, "authorization_host"),
            self.name,
            text(&begun, "url")
        ));
        let left = chrono::DateTime::parse_from_rfc3339(&text(&begun, "expires_at"))
            .ok()
            .and_then(|end| (end.to_utc() - chrono::Utc::now()).to_std().ok());
        let (door, mut visits) = mpsc::channel(1);
        let router = Router::new().route(&path, get(arrive)).with_state(Arc::new(Mutex::new(door)));
        let served = async {
            drop(axum::serve(listener, router).await);
            std::future::pending::<Infallible>().await
        };
        let claimed = timeout(left.unwrap_or(WAIT_MAX), async {
            loop {
                let Some((given, page)) = visits.recv().await else { std::future::pending().await };
                if let Some(done) = self.take(client, &given, page).await {
                    return done;
                }
            }
        });
        let ended = tokio::select! {
            never = served => match never {},
            claimed = claimed => claimed,
            _ = tokio::signal::ctrl_c() => return Err(Failure::Usage("nobody logged in".to_owned())),
        };
        let late = |_| Failure::Refused("nobody logged in within the time: try again".to_owned());
        ended.map_err(late)??;
        output::note(&format!(
            "logged in at server {}; whoever uses this API key calls the server with this login. mcpproxy upstream connections {0} lists \
             logins, and disconnect ends one",
            self.name
        ));
        Ok(())
    }

    /// Takes what a browser brings; `None` if it is not from a login.
    async fn take(
        &self,
        client: &ApiClient,
        given: &[(String, String)],
        page: oneshot::Sender<&'static str>,
    ) -> Option<Result<(), Failure>> {
        let value = |name: &str| given.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str());
        let (done, shown) = match (value("code"), value("error")) {
            (Some(code), _) => {
                let body = json!({ "claim_token": code }).to_string();
                let path = ["servers", &self.name, "connections", "claim"];
                match client.send(Method::POST, &path, body).await {
                    Ok(_) => (Ok(()), "You are logged in at the server. You can close this page."),
                    Err(failure) => (
                        Err(failure),
                        "The login could not be completed; the terminal says why. You can close this page.",
                    ),
                }
            }
            (None, Some("access_denied")) => {
                let text = "the login service did not log you in".to_owned();
                (Err(Failure::NotAuthorised(text)), "You are not logged in. You can close this page.")
            }
            (None, Some(_)) => {
                let text =
                    "the login service gave nothing that can be used; the gateway's log says more".to_owned();
                (
                    Err(Failure::Unreachable(text)),
                    "The login could not be completed. You can close this page.",
                )
            }
            (None, None) => return None,
        };
        // a browser that has gone away needs no page
        let _is_gone = page.send(shown).is_err();
        // the page goes out beside this future, and then the program ends
        tokio::time::sleep(LAST_PAGE_WAIT).await;
        Some(done)
    }
}

/// Hands over what a browser brings, and returns its last page.
async fn arrive(
    State(door): State<Door>,
    RawQuery(query): RawQuery,
) -> ([(header::HeaderName, &'static str); 2], Html<String>) {
    let query = query.unwrap_or_default();
    let given = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let (page, shown) = oneshot::channel();
    let is_heard = door.lock().await.send((given, page)).await.is_ok();
    let text = if is_heard { shown.await.ok() } else { None };
    let text = text.unwrap_or("This is no answer to a login.");
    // the address of this page has the code
    let headers = [(header::REFERRER_POLICY, "no-referrer"), (header::CACHE_CONTROL, "no-store")];
    (headers, Html(format!("<!doctype html><meta charset=utf-8><title>mcpproxy</title><p>{text}</p>")))
}
