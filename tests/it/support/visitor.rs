//! A browser at the console, as far as forms and cookies go: it follows no redirect by itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use reqwest::Method;

use super::answer::Answer;
use super::api::Api;
use super::gateway::Gateway;

/// A visitor with the cookies that the gateway set.
#[derive(Clone)]
pub struct Visitor {
    http: reqwest::Client,
    /// URL of the gateway.
    pub base: String,
    /// Origin of the pages, as the browser sees them.
    pub origin: String,
    cookies: Arc<Mutex<Vec<(String, String)>>>,
}

/// Most redirects on the way through a provider.
const REDIRECTS_MAX: usize = 10;
/// Name of the session's cookie.
pub const SESSION: &str = "__Host-mcpproxy";

fn http() -> reqwest::Client {
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([]);
    client.redirect(reqwest::redirect::Policy::none()).build().unwrap()
}

impl Visitor {
    /// A browser that is at no gateway, and comes back to this origin.
    pub fn nowhere(origin: &str) -> Visitor {
        Visitor { http: http(), base: String::new(), origin: origin.to_owned(), cookies: Arc::default() }
    }

    /// A visitor without cookies.
    pub fn of(gateway: &Gateway) -> Visitor {
        Visitor {
            http: http(),
            base: gateway.url.clone(),
            origin: gateway.url.clone(),
            cookies: Arc::default(),
        }
    }

    /// A visitor who has logged in with this caller's key.
    pub async fn with_key(gateway: &Gateway, api: &Api) -> Visitor {
        let visitor = Visitor::of(gateway);
        let answer = visitor.log_in(api.key.as_deref().unwrap()).await;
        assert_eq!((answer.status, answer.header("location")), (303, "/console"), "{answer:?}");
        visitor
    }

    /// A visitor who comes by a public URL.
    pub fn by(gateway: &Gateway, origin: &str) -> Visitor {
        Visitor { origin: origin.to_owned(), ..Visitor::of(gateway) }
    }

    /// This visitor with its cookies, at another replica.
    pub fn at(&self, gateway: &Gateway) -> Visitor {
        let cookies = Mutex::new(self.cookies.lock().unwrap().clone());
        Visitor { base: gateway.url.clone(), cookies: Arc::new(cookies), ..self.clone() }
    }

    /// A cookie's value.
    pub fn cookie(&self, name: &str) -> Option<String> {
        let cookies = self.cookies.lock().unwrap();
        cookies.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone())
    }

    /// Replaces a cookie.
    pub fn set_cookie(&self, name: &str, value: &str) {
        let mut cookies = self.cookies.lock().unwrap();
        cookies.retain(|(own, _)| own != name);
        if !value.is_empty() {
            cookies.push((name.to_owned(), value.to_owned()));
        }
    }

    /// A request with the cookies.
    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let cookies: Vec<String> =
            self.cookies.lock().unwrap().iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = self.http.request(method, format!("{}{path}", self.base));
        if cookies.is_empty() { request } else { request.header("Cookie", cookies.join("; ")) }
    }

    /// Sends a request made by hand, and keeps the cookies of the answer.
    pub async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        let answer = Answer::read(request.send().await.unwrap()).await;
        for line in answer.headers.get_all("set-cookie") {
            let (name, rest) = line.to_str().unwrap().split_once('=').unwrap();
            self.set_cookie(name, rest.split(';').next().unwrap());
        }
        answer
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    /// Sends a form as a page of the console does, with the hidden text of the page.
    pub async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let csrf = self.csrf().await;
        self.send(self.form(path, &[fields, &[("csrf", csrf.as_str())]].concat())).await
    }

    /// A form as a browser sends it.
    pub fn form(&self, path: &str, fields: &[(&str, &str)]) -> reqwest::RequestBuilder {
        let mut body = url::form_urlencoded::Serializer::new(String::new());
        body.extend_pairs(fields);
        self.request(Method::POST, path)
            .header("Origin", &self.origin)
            .header("Content-Type", "application/x-www-form-urlencoded")
            .body(body.finish())
    }

    /// Sends the form of the login.
    pub async fn log_in(&self, key: &str) -> Answer {
        self.send(self.form("/console/login", &[("api_key", key)])).await
    }

    /// Goes to the provider, and on wherever it sends the browser. Returns the path of its redirect to the gateway, where the
    /// browser has not been yet.
    pub async fn to_provider(&self, path: &str) -> String {
        let begun = self.get(path).await;
        assert_eq!(begun.status, 303, "{begun:?}");
        self.through_provider(begun.header("location")).await
    }

    /// Goes to this URL of a provider, and on wherever it sends the browser. Returns the path of its redirect to this visitor's
    /// origin, where the browser has not been yet.
    pub async fn through_provider(&self, url: &str) -> String {
        let mut url = url::Url::parse(url).unwrap();
        // by name: the provider replaces them on the way
        let mut cookies = BTreeMap::new();
        for _ in 0..REDIRECTS_MAX {
            let sent: Vec<String> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let request = self.http.get(url.clone()).header("Cookie", sent.join("; "));
            let answer = request.send().await.unwrap();
            assert!(answer.status().is_redirection(), "{url}: {answer:?}");
            for line in answer.headers().get_all("set-cookie") {
                let (name, rest) = line.to_str().unwrap().split_once('=').unwrap();
                cookies.insert(name.to_owned(), rest.split(';').next().unwrap().to_owned());
            }
            url = url.join(answer.headers()["location"].to_str().unwrap()).unwrap();
            if url.origin().ascii_serialization() == self.origin {
                return format!("{}?{}", url.path(), url.query().unwrap_or_default());
            }
        }
        panic!("the provider sends the browser around: {url}");
    }

    /// Logs in at the provider. Returns the gateway's answer to its redirect.
    pub async fn log_in_there(&self) -> Answer {
        let back = self.to_provider("/console/login/provider").await;
        self.get(&back).await
    }

    /// The hidden text of the first page's forms; "" for one who is not logged in.
    pub async fn csrf(&self) -> String {
        let page = self.get("/console").await.text;
        let found = page.split_once("name=\"csrf\" value=\"").map(|(_, rest)| rest);
        found.and_then(|rest| rest.split('"').next()).unwrap_or_default().to_owned()
    }
}
