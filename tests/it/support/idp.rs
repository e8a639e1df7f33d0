//! An identity provider on loopback, which signs any token and can be told to behave badly.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, StatusCode};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Answer of the provider at the URL of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdpMood {
    /// The keys.
    Well,
    /// A set of these keys instead of its own.
    Keys(Vec<Value>),
    /// 500.
    Broken,
    /// Nothing, for longer than anybody waits.
    Silent,
    /// Nothing until the mood changes, and then what the new one answers.
    Held,
    /// More than anybody reads.
    Huge,
    /// A redirect to the keys of another place.
    Elsewhere(String),
}

/// A signing key.
struct SigningKey {
    kid: String,
    pair: EcdsaKeyPair,
}

impl SigningKey {
    fn new(kid: &str) -> SigningKey {
        let pkcs8 =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &SystemRandom::new());
        SigningKey { kid: kid.to_owned(), pair: pair.unwrap() }
    }

    fn jwk(&self) -> Value {
        let point = &self.pair.public_key().as_ref()[1..];
        let (x, y) = point.split_at(point.len() / 2);
        json!({"kty": "EC", "crv": "P-256", "kid": self.kid, "use": "sig", "x": encode(x), "y": encode(y)})
    }
}

/// Form that came to the token endpoint, with the header `Authorization`.
pub type TokenForm = (HashMap<String, String>, Option<String>);

struct Shared {
    url: Mutex<String>,
    /// Issuer that the metadata names, instead of the provider's own.
    lie: Mutex<Option<String>>,
    keys: Mutex<Vec<SigningKey>>,
    mood: watch::Sender<IdpMood>,
    fetches: AtomicUsize,
    login: Mutex<IdpLogin>,
    /// Logins by code: the parameters of their begin.
    codes: Mutex<HashMap<String, HashMap<String, String>>>,
    /// Forms that came to the token endpoint, with the header `Authorization`.
    exchanges: Mutex<Vec<TokenForm>>,
    /// ID tokens that were issued.
    id_tokens: Mutex<Vec<String>>,
}

/// Behaviour of the provider's logins.
#[derive(Clone, Debug)]
pub struct IdpLogin {
    /// Person who is logged in there.
    pub subject: String,
    /// Further claims of ID tokens, which replace others.
    pub claims: Value,
    /// Members of the metadata, which replace others.
    pub metadata: Value,
    /// Parameters that replace those of the redirect; null removes one.
    pub answer: Value,
    /// Header of ID tokens.
    pub typ: &'static str,
    /// Error of the token endpoint; `None` for tokens.
    pub refusal: Option<Value>,
}

/// The running provider; stops when dropped.
pub struct Idp {
    /// Issuer URL.
    pub url: String,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Seconds since 1970.
pub fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

impl Idp {
    /// A provider with one key, `k1`.
    pub async fn start() -> Idp {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/realm", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            url: Mutex::new(url.clone()),
            lie: Mutex::default(),
            keys: Mutex::new(vec![SigningKey::new("k1")]),
            mood: watch::Sender::new(IdpMood::Well),
            fetches: AtomicUsize::new(0),
            login: Mutex::new(IdpLogin {
                subject: "u1".to_owned(),
                claims: json!({}),
                metadata: json!({}),
                answer: json!({}),
                typ: "JWT",
                refusal: None,
            }),
            codes: Mutex::default(),
            exchanges: Mutex::default(),
            id_tokens: Mutex::default(),
        });
        let app = Router::new()
            .route("/realm/.well-known/openid-configuration", get(metadata))
            .route("/realm/keys", get(keys))
            .route("/realm/authorize", get(authorize))
            .route("/realm/token", post(token))
            .route("/realm/logout", get(|| async { "you are logged out here" }))
            .with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Idp { url, shared, task }
    }

    pub fn set(&self, mood: IdpMood) {
        self.shared.mood.send_replace(mood);
    }

    /// Public halves of the keys, as the key set has them.
    pub fn jwks(&self) -> Vec<Value> {
        self.shared.keys.lock().unwrap().iter().map(SigningKey::jwk).collect()
    }

    /// Changes how logins go from now on.
    pub fn log_in(&self, change: impl FnOnce(&mut IdpLogin)) {
        change(&mut self.shared.login.lock().unwrap());
    }

    /// Forms that came to the token endpoint, with the header `Authorization`.
    pub fn exchanges(&self) -> Vec<TokenForm> {
        self.shared.exchanges.lock().unwrap().clone()
    }

    /// ID tokens that were issued.
    pub fn id_tokens(&self) -> Vec<String> {
        self.shared.id_tokens.lock().unwrap().clone()
    }

    /// Has the metadata name another issuer.
    pub fn lie(&self, issuer: &str) {
        *self.shared.lie.lock().unwrap() = Some(issuer.to_owned());
    }

    /// Adds a key, with which tokens are signed from now on.
    pub fn rotate(&self, kid: &str) {
        self.shared.keys.lock().unwrap().push(SigningKey::new(kid));
    }

    /// Withdraws the oldest key.
    pub fn withdraw(&self) {
        self.shared.keys.lock().unwrap().remove(0);
    }

    /// Number of requests for the keys, answered or not.
    pub fn fetches(&self) -> usize {
        self.shared.fetches.load(Ordering::SeqCst)
    }

    /// Claims of an access token of this person for this audience.
    pub fn claims(&self, subject: &str, audience: &str) -> Value {
        let now = now_s();
        json!({"iss": self.url, "sub": subject, "aud": audience, "iat": now, "exp": now + 600})
    }

    /// Signs a token with the newest key.
    pub fn sign(&self, claims: &Value) -> String {
        let kid = self.shared.keys.lock().unwrap().last().unwrap().kid.clone();
        self.sign_as(&json!({"alg": "ES256", "typ": "at+jwt", "kid": kid}), claims)
    }

    /// Signs a token with the newest key, under this header.
    pub fn sign_as(&self, header: &Value, claims: &Value) -> String {
        let signed =
            format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.to_string().as_bytes()));
        let keys = self.shared.keys.lock().unwrap();
        let pair = &keys.last().unwrap().pair;
        let signature = pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", encode(signature.as_ref()))
    }

    /// A token of this person for this audience, with further claims.
    pub fn token(&self, subject: &str, audience: &str, more: Value) -> String {
        let mut claims = self.claims(subject, audience);
        let Value::Object(more) = more else { panic!("claims are an object") };
        claims.as_object_mut().unwrap().extend(more);
        self.sign(&claims)
    }
}

impl Drop for Idp {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn metadata(State(shared): State<Arc<Shared>>) -> Response {
    let url = shared.url.lock().unwrap().clone();
    let issuer = shared.lie.lock().unwrap().clone().unwrap_or_else(|| url.clone());
    let mut metadata = json!({
        "issuer": issuer, "jwks_uri": format!("{url}/keys"),
        "authorization_endpoint": format!("{url}/authorize"), "token_endpoint": format!("{url}/token"),
        "end_session_endpoint": format!("{url}/logout"), "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": true,
    });
    let more = shared.login.lock().unwrap().metadata.clone();
    metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    metadata.to_string().into_response()
}

/// Logs the person in who is there, and sends the browser back.
async fn authorize(
    State(shared): State<Arc<Shared>>,
    Query(asked): Query<HashMap<String, String>>,
) -> Response {
    let code = encode(&ring::rand::generate::<[u8; 16]>(&SystemRandom::new()).unwrap().expose());
    let back = asked["redirect_uri"].clone();
    let mut answer = json!({
        "code": code, "state": asked["state"], "iss": shared.url.lock().unwrap().clone(),
    });
    let more = shared.login.lock().unwrap().answer.clone();
    answer.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    shared.codes.lock().unwrap().insert(code, asked);
    let mut url = url::Url::parse(&back).unwrap();
    for (name, value) in answer.as_object().unwrap() {
        if let Some(value) = value.as_str() {
            url.query_pairs_mut().append_pair(name, value);
        }
    }
    Redirect::to(url.as_str()).into_response()
}

/// Exchanges a code, once, for whoever has its verifier.
async fn token(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: String) -> Response {
    let form: HashMap<String, String> = url::form_urlencoded::parse(body.as_bytes()).into_owned().collect();
    let header = headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
    shared.exchanges.lock().unwrap().push((form.clone(), header));
    let login = shared.login.lock().unwrap().clone();
    let refuse = |error: Value| (StatusCode::BAD_REQUEST, error.to_string()).into_response();
    if let Some(error) = login.refusal {
        return refuse(error);
    }
    let Some(begun) = shared.codes.lock().unwrap().remove(&form["code"]) else {
        return refuse(json!({"error": "invalid_grant"}));
    };
    let digest = ring::digest::digest(&ring::digest::SHA256, form["code_verifier"].as_bytes());
    if begun["code_challenge_method"] != "S256"
        || begun["code_challenge"] != encode(digest.as_ref())
        || begun["redirect_uri"] != form["redirect_uri"]
    {
        return refuse(json!({"error": "invalid_grant"}));
    }
    let now = now_s();
    let mut claims = json!({
        "iss": shared.url.lock().unwrap().clone(), "sub": login.subject, "aud": begun["client_id"],
        "iat": now, "exp": now + 300, "nonce": begun["nonce"], "sid": format!("at-{}", login.subject),
    });
    claims.as_object_mut().unwrap().extend(login.claims.as_object().unwrap().clone());
    let id_token = sign(&shared, &json!({"alg": "ES256", "typ": login.typ}), &claims);
    shared.id_tokens.lock().unwrap().push(id_token.clone());
    json!({"access_token": "opaque", "token_type": "Bearer", "expires_in": 300, "id_token": id_token})
        .to_string()
        .into_response()
}

/// Signs a token with the newest key, under this header, to which the key's id is added.
fn sign(shared: &Shared, header: &Value, claims: &Value) -> String {
    let keys = shared.keys.lock().unwrap();
    let key = keys.last().unwrap();
    let mut header = header.clone();
    header.as_object_mut().unwrap().entry("kid").or_insert(json!(key.kid));
    let signed =
        format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.to_string().as_bytes()));
    let signature = key.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
    format!("{signed}.{}", encode(signature.as_ref()))
}

async fn keys(State(shared): State<Arc<Shared>>) -> Response {
    shared.fetches.fetch_add(1, Ordering::SeqCst);
    let mut moods = shared.mood.subscribe();
    let Ok(mood) = moods.wait_for(|mood| *mood != IdpMood::Held).await.map(|mood| mood.clone()) else {
        return StatusCode::GONE.into_response();
    };
    match mood {
        IdpMood::Held => unreachable!("it was waited for another"),
        IdpMood::Well => {
            let keys: Vec<Value> = shared.keys.lock().unwrap().iter().map(SigningKey::jwk).collect();
            json!({ "keys": keys }).to_string().into_response()
        }
        IdpMood::Keys(keys) => json!({ "keys": keys }).to_string().into_response(),
        IdpMood::Broken => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        IdpMood::Silent => {
            tokio::time::sleep(Duration::from_secs(60)).await;
            StatusCode::OK.into_response()
        }
        IdpMood::Huge => "x".repeat(300 * 1024).into_response(),
        IdpMood::Elsewhere(url) => Redirect::temporary(&url).into_response(),
    }
}
