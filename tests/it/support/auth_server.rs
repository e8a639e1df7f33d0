//! An authorization server on loopback where people log in: code with PKCE, tokens that are renewed by others, each of which is good
//! once, and reuse of one ends the login. It can be told to behave badly.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, StatusCode};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Answer of the token endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthMood {
    /// As it should be.
    Well,
    /// 503, and nothing is done.
    Broken,
    /// The request is carried out, and its answer is lost.
    Lost,
    /// No answer until the mood changes, and then what the new one answers.
    Held,
}

/// Form that came to an endpoint, with the header `Authorization`.
#[derive(Clone, Debug)]
pub struct AuthAsked {
    pub form: HashMap<String, String>,
    pub header: Option<String>,
}

/// Behaviour towards browsers, and the metadata.
#[derive(Clone, Debug)]
pub struct AuthRules {
    /// Person who is logged in there.
    pub subject: String,
    /// Members of the metadata, which replace others; null removes one.
    pub metadata: Value,
    /// Parameters that replace those of the redirect; null removes one.
    pub answer: Value,
    /// Life of access tokens.
    pub life: Duration,
}

/// Access token that was given.
#[derive(Clone, Debug)]
struct Given {
    token: String,
    subject: String,
    scope: String,
    ends: Instant,
    login: String,
}

#[derive(Default)]
struct Book {
    /// Parameters of the begin, and the person, by code.
    codes: HashMap<String, (HashMap<String, String>, String)>,
    given: Vec<Given>,
    /// Login and scope of each token that renews one.
    refresh: HashMap<String, (String, String, String)>,
    used: HashMap<String, String>,
    asked: Vec<AuthAsked>,
    begun: Vec<HashMap<String, String>>,
    revoked: Vec<AuthAsked>,
    registered: Vec<Value>,
    reuses: usize,
}

struct Shared {
    url: Mutex<String>,
    mood: watch::Sender<AuthMood>,
    rules: Mutex<AuthRules>,
    book: Mutex<Book>,
    held: AtomicUsize,
}

/// Request that waits for another mood.
struct Held<'a>(&'a AtomicUsize);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The running server; stops when dropped.
pub struct AuthServer {
    /// Issuer URL.
    pub url: String,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

fn random() -> String {
    let random = ring::rand::generate::<[u8; 16]>(&SystemRandom::new()).unwrap().expose();
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl AuthServer {
    pub async fn start() -> AuthServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/as", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            url: Mutex::new(url.clone()),
            mood: watch::Sender::new(AuthMood::Well),
            rules: Mutex::new(AuthRules {
                subject: "ana".to_owned(),
                metadata: json!({}),
                answer: json!({}),
                life: Duration::from_secs(600),
            }),
            book: Mutex::default(),
            held: AtomicUsize::new(0),
        });
        let app = Router::new()
            .route("/.well-known/oauth-authorization-server/as", get(metadata))
            .route("/as/authorize", get(authorize))
            .route("/as/token", post(token))
            .route("/as/revoke", post(revoke))
            .route("/as/register", post(register))
            .with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        AuthServer { url, shared, task }
    }

    pub fn set(&self, mood: AuthMood) {
        self.shared.mood.send_replace(mood);
    }

    /// Changes how it behaves towards browsers.
    pub fn change(&self, change: impl FnOnce(&mut AuthRules)) {
        change(&mut self.shared.rules.lock().unwrap());
    }

    /// Requests that came to the token endpoint with this grant.
    pub fn asked(&self, grant: &str) -> Vec<AuthAsked> {
        let book = self.shared.book.lock().unwrap();
        book.asked.iter().filter(|asked| asked.form["grant_type"] == grant).cloned().collect()
    }

    /// Requests that wait for another mood.
    pub fn held(&self) -> usize {
        self.shared.held.load(Ordering::SeqCst)
    }

    /// Parameters of the logins that browsers began.
    pub fn begun(&self) -> Vec<HashMap<String, String>> {
        self.shared.book.lock().unwrap().begun.clone()
    }

    /// Requests that came to the revocation endpoint.
    pub fn revoked(&self) -> Vec<AuthAsked> {
        self.shared.book.lock().unwrap().revoked.clone()
    }

    /// Clients that registered themselves.
    pub fn registered(&self) -> Vec<Value> {
        self.shared.book.lock().unwrap().registered.clone()
    }

    /// Times that a token was used again.
    pub fn reuses(&self) -> usize {
        self.shared.book.lock().unwrap().reuses
    }

    /// Access tokens that were given to a person so far.
    pub fn tokens_of(&self, subject: &str) -> Vec<String> {
        let book = self.shared.book.lock().unwrap();
        book.given.iter().filter(|given| given.subject == subject).map(|given| given.token.clone()).collect()
    }

    /// All secrets that it gave out.
    pub fn secrets(&self) -> Vec<String> {
        let book = self.shared.book.lock().unwrap();
        let tokens = book.given.iter().map(|given| given.token.clone());
        let all = book.refresh.keys().chain(book.used.keys()).chain(book.codes.keys());
        tokens.chain(all.cloned()).collect()
    }

    /// Ends all access tokens that were given so far.
    pub fn end_tokens(&self) {
        let now = Instant::now();
        self.shared.book.lock().unwrap().given.iter_mut().for_each(|given| given.ends = now);
    }

    /// Ends all logins: nothing renews them any more.
    pub fn end_logins(&self) {
        let mut book = self.shared.book.lock().unwrap();
        book.refresh.clear();
        let now = Instant::now();
        book.given.iter_mut().for_each(|given| given.ends = now);
    }

    /// A check of tokens, for a server.
    pub fn check(&self) -> impl Fn(&str) -> bool + Send + Sync + 'static + use<> {
        let shared = Arc::clone(&self.shared);
        move |token| {
            let book = shared.book.lock().unwrap();
            book.given.iter().any(|known| known.token == token && known.ends > Instant::now())
        }
    }

    /// Looks up the scopes of a token that it gave, for a server.
    pub fn scopes(&self) -> impl Fn(&str) -> String + Send + Sync + 'static + use<> {
        let shared = Arc::clone(&self.shared);
        move |token| {
            let book = shared.book.lock().unwrap();
            let found = book.given.iter().find(|known| known.token == token);
            found.map(|found| found.scope.clone()).unwrap_or_default()
        }
    }
}

impl Drop for AuthServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Replaces members; null removes one.
fn replaced(mut all: Value, with: &Value) -> Value {
    for (name, value) in with.as_object().unwrap() {
        match value {
            Value::Null => drop(all.as_object_mut().unwrap().remove(name)),
            value => all[name] = value.clone(),
        }
    }
    all
}

async fn metadata(State(shared): State<Arc<Shared>>) -> Response {
    let url = shared.url.lock().unwrap().clone();
    let own = json!({
        "issuer": url, "token_endpoint": format!("{url}/token"), "authorization_endpoint": format!("{url}/authorize"),
        "revocation_endpoint": format!("{url}/revoke"), "registration_endpoint": format!("{url}/register"),
        "code_challenge_methods_supported": ["S256"], "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
        "authorization_response_iss_parameter_supported": true,
    });
    replaced(own, &shared.rules.lock().unwrap().metadata).to_string().into_response()
}

/// The person is logged in, and agrees at once.
async fn authorize(
    State(shared): State<Arc<Shared>>,
    Query(asked): Query<HashMap<String, String>>,
) -> Response {
    let rules = shared.rules.lock().unwrap().clone();
    let mut book = shared.book.lock().unwrap();
    book.begun.push(asked.clone());
    let code = format!("code-{}", random());
    book.codes.insert(code.clone(), (asked.clone(), rules.subject.clone()));
    let own = json!({"code": code, "state": asked["state"], "iss": *shared.url.lock().unwrap()});
    let mut url = url::Url::parse(&asked["redirect_uri"]).unwrap();
    for (name, value) in replaced(own, &rules.answer).as_object().unwrap() {
        url.query_pairs_mut().append_pair(name, value.as_str().unwrap());
    }
    Redirect::to(url.as_str()).into_response()
}

fn refused(error: &str) -> Response {
    let body = json!({"error": error, "error_description": "marked-words-of-the-provider"});
    (StatusCode::BAD_REQUEST, body.to_string()).into_response()
}

/// Login, person and scope that a request is good for.
fn admitted(
    book: &mut Book,
    form: &HashMap<String, String>,
) -> Result<(String, String, String), &'static str> {
    let given = |name: &str| form.get(name).cloned().unwrap_or_default();
    match given("grant_type").as_str() {
        "authorization_code" => {
            let (begun, subject) = book.codes.remove(&given("code")).ok_or("invalid_grant")?;
            let verifier = digest(&SHA256, given("code_verifier").as_bytes());
            let fits = URL_SAFE_NO_PAD.encode(verifier) == begun["code_challenge"]
                && given("redirect_uri") == begun["redirect_uri"]
                && given("resource") == begun.get("resource").cloned().unwrap_or_default();
            let scope = begun.get("scope").cloned().unwrap_or_default();
            if fits { Ok((random(), subject, scope)) } else { Err("invalid_grant") }
        }
        "refresh_token" => {
            let token = given("refresh_token");
            if let Some(login) = book.used.get(&token).cloned() {
                // somebody has a copy: the login is over (RFC 9700, section 4.14.2)
                book.reuses += 1;
                book.refresh.retain(|_, (own, _, _)| *own != login);
                let now = Instant::now();
                book.given.iter_mut().filter(|given| given.login == login).for_each(|given| given.ends = now);
                return Err("invalid_grant");
            }
            let found = book.refresh.remove(&token).ok_or("invalid_grant")?;
            book.used.insert(token, found.0.clone());
            Ok(found)
        }
        _ => Err("unsupported_grant_type"),
    }
}

fn header(headers: &HeaderMap) -> Option<String> {
    headers.get("authorization").map(|value| value.to_str().unwrap().to_owned())
}

async fn token(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: String) -> Response {
    let form: HashMap<String, String> = url::form_urlencoded::parse(body.as_bytes()).into_owned().collect();
    let asked = AuthAsked { form: form.clone(), header: header(&headers) };
    shared.book.lock().unwrap().asked.push(asked);
    let mut moods = shared.mood.subscribe();
    shared.held.fetch_add(1, Ordering::SeqCst);
    let held = Held(&shared.held);
    let Ok(mood) = moods.wait_for(|mood| *mood != AuthMood::Held).await.map(|mood| mood.clone()) else {
        return StatusCode::GONE.into_response();
    };
    drop(held);
    if mood == AuthMood::Broken {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let life = shared.rules.lock().unwrap().life;
    let mut book = shared.book.lock().unwrap();
    let (login, subject, scope) = match admitted(&mut book, &form) {
        Ok(admitted) => admitted,
        Err(error) => return refused(error),
    };
    let (access, refresh) = (format!("access-of-{subject}-{}", random()), format!("refresh-{}", random()));
    book.refresh.insert(refresh.clone(), (login.clone(), subject.clone(), scope.clone()));
    let ends = Instant::now() + life;
    book.given.push(Given { token: access.clone(), subject, scope: scope.clone(), ends, login });
    if mood == AuthMood::Lost {
        return StatusCode::BAD_GATEWAY.into_response();
    }
    json!({
        "access_token": access, "token_type": "Bearer", "expires_in": life.as_secs(), "refresh_token": refresh, "scope": scope,
    })
    .to_string()
    .into_response()
}

async fn revoke(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: String) -> StatusCode {
    let form: HashMap<String, String> = url::form_urlencoded::parse(body.as_bytes()).into_owned().collect();
    let mut book = shared.book.lock().unwrap();
    let token = form.get("token").cloned().unwrap_or_default();
    book.revoked.push(AuthAsked { form, header: header(&headers) });
    book.refresh.remove(&token);
    let now = Instant::now();
    book.given.iter_mut().filter(|given| given.token == token).for_each(|given| given.ends = now);
    StatusCode::OK
}

async fn register(State(shared): State<Arc<Shared>>, body: String) -> Response {
    let document: Value = serde_json::from_str(&body).unwrap();
    shared.book.lock().unwrap().registered.push(document.clone());
    let way = document["token_endpoint_auth_method"].clone();
    let mut answer =
        json!({"client_id": format!("registered-{}", random()), "token_endpoint_auth_method": way});
    if way != "none" {
        answer["client_secret"] = json!(format!("secret-{}", random()));
    }
    (StatusCode::CREATED, answer.to_string()).into_response()
}
