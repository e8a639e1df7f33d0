//! An authorization server on loopback that gives opaque tokens to clients, and can be told to behave badly.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::{HeaderMap, StatusCode};
use ring::rand::SystemRandom;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Answer of the token endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenMood {
    /// A token, for a client whose secret is right.
    Well,
    /// 503.
    Broken,
    /// Nothing, for longer than anybody waits.
    Silent,
    /// No answer until the mood changes, and then what the new one answers.
    Held,
    /// More than anybody reads.
    Huge,
    /// A redirect to another place.
    Elsewhere(String),
    /// A page of HTML, with status 200.
    Html,
    /// Body of the answer, with status 200.
    Raw(String),
}

/// Request that came to the token endpoint.
#[derive(Clone, Debug)]
pub struct TokenAsked {
    /// Form of the request.
    pub form: HashMap<String, String>,
}

struct Shared {
    url: Mutex<String>,
    mood: watch::Sender<TokenMood>,
    life: Mutex<Duration>,
    asked: Mutex<Vec<TokenAsked>>,
    /// Tokens that were given, with the client and the end of each.
    given: Mutex<Vec<(String, String, Instant)>>,
    /// Subjects, and tokens, for which no token is given in exchange.
    unwelcome: Mutex<Vec<String>>,
}

/// The running server; stops when dropped.
pub struct TokenServer {
    /// Issuer URL.
    pub url: String,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

/// The secret of a client.
pub fn secret_of(client: &str) -> String {
    format!("s3cret-of-{client}+/=&%")
}

impl TokenServer {
    pub async fn start() -> TokenServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/as", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            url: Mutex::new(url.clone()),
            mood: watch::Sender::new(TokenMood::Well),
            life: Mutex::new(Duration::from_secs(600)),
            asked: Mutex::default(),
            given: Mutex::default(),
            unwelcome: Mutex::default(),
        });
        let app = Router::new()
            .route("/.well-known/oauth-authorization-server/as", get(metadata))
            .route("/as/token", post(token))
            .with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        TokenServer { url, shared, task }
    }

    pub fn endpoint(&self) -> String {
        format!("{}/token", self.url)
    }

    pub fn set(&self, mood: TokenMood) {
        self.shared.mood.send_replace(mood);
    }

    /// Tokens live so long from now on.
    pub fn live(&self, life: Duration) {
        *self.shared.life.lock().unwrap() = life;
    }

    /// Requests that came to the token endpoint so far.
    pub fn asked(&self) -> Vec<TokenAsked> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// Tokens that were given so far to a client.
    pub fn tokens_of(&self, client: &str) -> Vec<String> {
        let given = self.shared.given.lock().unwrap();
        given.iter().filter(|(_, of, _)| of == client).map(|(token, _, _)| token.clone()).collect()
    }

    /// Gives no token in exchange for these tokens, or those of these subjects, from now on.
    pub fn refuse(&self, unwelcome: &[&str]) {
        *self.shared.unwelcome.lock().unwrap() = unwelcome.iter().map(|whom| (*whom).to_owned()).collect();
    }

    /// Ends all tokens that were given so far.
    pub fn revoke(&self) {
        let now = Instant::now();
        self.shared.given.lock().unwrap().iter_mut().for_each(|(_, _, ends)| *ends = now);
    }

    /// A check of tokens, for a server.
    pub fn check(&self) -> impl Fn(&str) -> bool + Send + Sync + 'static + use<> {
        let shared = Arc::clone(&self.shared);
        move |token| {
            let given = shared.given.lock().unwrap();
            given.iter().any(|(known, _, ends)| known == token && *ends > Instant::now())
        }
    }
}

impl Drop for TokenServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn metadata(State(shared): State<Arc<Shared>>) -> Response {
    let url = shared.url.lock().unwrap().clone();
    json!({
        "issuer": url, "token_endpoint": format!("{url}/token"),
        "token_endpoint_auth_methods_supported": ["client_secret_post", "client_secret_basic"],
    })
    .to_string()
    .into_response()
}

/// Id and secret of the header, decoded as a form's are.
fn client(headers: &HeaderMap, form: &HashMap<String, String>) -> Option<(String, String)> {
    let Some(header) = headers.get("authorization") else {
        return Some((form.get("client_id")?.clone(), form.get("client_secret")?.clone()));
    };
    let pair = STANDARD.decode(header.to_str().ok()?.strip_prefix("Basic ")?).ok()?;
    let pair = String::from_utf8(pair).ok()?;
    let (id, secret) = pair.split_once(':')?;
    let decoded = |text: &str| {
        let pair = format!("x={text}");
        url::form_urlencoded::parse(pair.as_bytes()).next().map(|(_, value)| value.into_owned())
    };
    Some((decoded(id)?, decoded(secret)?))
}

/// Subject of a token; the signature is the gateway's affair.
fn subject_of(token: &str) -> String {
    let payload = token.split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    let claims: Value = serde_json::from_slice(&payload.unwrap_or_default()).unwrap_or_default();
    claims["sub"].as_str().unwrap_or("nobody").to_owned()
}

async fn token(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: String) -> Response {
    let form: HashMap<String, String> = url::form_urlencoded::parse(body.as_bytes()).into_owned().collect();
    let presented = client(&headers, &form);
    let id = presented.clone().unwrap_or_default().0;
    shared.asked.lock().unwrap().push(TokenAsked { form: form.clone() });
    let mut moods = shared.mood.subscribe();
    let Ok(mood) = moods.wait_for(|mood| *mood != TokenMood::Held).await.map(|mood| mood.clone()) else {
        return StatusCode::GONE.into_response();
    };
    match mood {
        TokenMood::Held => unreachable!("it was waited for another"),
        TokenMood::Broken => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        TokenMood::Silent => {
            tokio::time::sleep(Duration::from_secs(60)).await;
            StatusCode::OK.into_response()
        }
        TokenMood::Huge => "x".repeat(300 * 1024).into_response(),
        TokenMood::Elsewhere(url) => Redirect::temporary(&url).into_response(),
        TokenMood::Html => Html("<p>please log in</p>").into_response(),
        TokenMood::Raw(body) => body.into_response(),
        TokenMood::Well if presented.is_none_or(|(id, secret)| secret != secret_of(&id)) => {
            let fault =
                json!({"error": "invalid_client", "error_description": "marked-words-of-the-provider"});
            (StatusCode::UNAUTHORIZED, fault.to_string()).into_response()
        }
        TokenMood::Well => {
            let random = ring::rand::generate::<[u8; 12]>(&SystemRandom::new()).unwrap().expose();
            let random: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
            let presented = form.get("subject_token").or(form.get("assertion"));
            let person = presented.map(|token| subject_of(token));
            let is_unwelcome = |whom: &String| shared.unwelcome.lock().unwrap().contains(whom);
            let whose = match person {
                None => String::new(),
                Some(person) if is_unwelcome(&person) || presented.is_some_and(is_unwelcome) => {
                    let fault = json!({"error": "access_denied", "error_description": "marked-words-of-the-provider"});
                    return (StatusCode::BAD_REQUEST, fault.to_string()).into_response();
                }
                Some(person) => format!("for-{person}-"),
            };
            let token = format!("opaque-token-of-{id}-{whose}{random}");
            let life = *shared.life.lock().unwrap();
            shared.given.lock().unwrap().push((token.clone(), id, Instant::now() + life));
            json!({"access_token": token, "token_type": "Bearer", "expires_in": life.as_secs()})
                .to_string()
                .into_response()
        }
    }
}
