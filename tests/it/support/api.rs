//! REST as one caller.

use reqwest::{Method, RequestBuilder};
use serde_json::Value;

use super::answer::Answer;
use super::document::Document;
use super::unread::Unread;

/// A caller: where, with which key, as which tenant.
#[derive(Clone)]
pub struct Api {
    pub(super) http: reqwest::Client,
    pub(super) base: String,
    /// The secret.
    pub key: Option<String>,
    pub(super) tenant: Option<String>,
    /// The key's id, when it was made here.
    pub id: String,
    /// Whether answers are held against the OpenAPI document.
    pub(super) is_documented: bool,
}

impl Api {
    pub(super) fn new(http: reqwest::Client, base: &str) -> Api {
        Api { http, base: base.to_owned(), key: None, tenant: None, id: String::new(), is_documented: true }
    }

    /// The same without `X-Tenant`.
    pub fn without_tenant(&self) -> Api {
        Api { tenant: None, ..self.clone() }
    }

    /// The same, for answers that the document does not describe.
    pub fn undocumented(&self) -> Api {
        Api { is_documented: false, ..self.clone() }
    }

    /// Where it asks.
    pub fn base_url(&self) -> String {
        self.base.clone()
    }

    /// The same caller at another address.
    pub fn at(&self, base: &str) -> Api {
        Api { base: base.to_owned(), ..self.clone() }
    }

    /// The same with this key.
    pub fn with_key(&self, key: &str) -> Api {
        Api { key: Some(key.to_owned()), ..self.clone() }
    }

    /// The same with `X-Tenant`.
    pub fn as_tenant(&self, tenant: &str) -> Api {
        Api { tenant: Some(tenant.to_owned()), ..self.clone() }
    }

    /// A request with this caller's credential.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        match &self.key {
            // a token of an identity provider
            Some(token) if token.matches('.').count() == 2 => request = request.bearer_auth(token),
            Some(key) => request = request.header("X-API-Key", key),
            None => {}
        }
        if let Some(tenant) = &self.tenant {
            request = request.header("X-Tenant", tenant);
        }
        request
    }

    /// Sends a request made by hand. Not being answered is status 0, the error its text. What REST answers must be
    /// what the document says.
    pub async fn send(&self, request: RequestBuilder) -> Answer {
        let (http, request) = request.build_split();
        let request = request.unwrap();
        let (method, path) = (request.method().clone(), request.url().path().to_owned());
        match http.execute(request).await {
            Ok(response) => {
                let answer = Answer::read(response).await;
                if let Some(path) = path.strip_prefix("/api/v1").filter(|_| self.is_documented) {
                    Document::get().check(method.as_str(), path, &answer);
                }
                answer
            }
            Err(error) => {
                Answer { status: 0, headers: Default::default(), text: error.to_string(), events: Vec::new() }
            }
        }
    }

    pub fn get(&self, path: &str) -> impl Future<Output = Answer> + use<> {
        self.ask(Method::GET, path, None)
    }

    pub fn post(&self, path: &str, body: &Value) -> impl Future<Output = Answer> + use<> {
        self.ask(Method::POST, path, Some(body))
    }

    pub fn patch(&self, path: &str, body: &Value) -> impl Future<Output = Answer> + use<> {
        self.ask(Method::PATCH, path, Some(body))
    }

    pub fn delete(&self, path: &str) -> impl Future<Output = Answer> + use<> {
        self.ask(Method::DELETE, path, None)
    }

    /// A request whose answer is left where it is.
    pub async fn leave_unread(&self, path: &str) -> Unread {
        Unread::send(&self.request(Method::GET, path).build().unwrap()).await
    }

    /// A request that may have a JSON body.
    pub fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> impl Future<Output = Answer> + use<> {
        let mut request = self.request(method, path);
        if let Some(body) = body {
            request = request.json(body);
        }
        let api = self.clone();
        async move { api.send(request).await }
    }

    /// Every item of a paged list.
    pub async fn items(&self, path: &str) -> Vec<Value> {
        let mut items = Vec::new();
        let mut cursor = String::new();
        let joint = if path.contains('?') { '&' } else { '?' };
        loop {
            let page = self.get(&format!("{path}{joint}limit=100{cursor}")).await.expect(200);
            items.extend(page["items"].as_array().unwrap().iter().cloned());
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return items,
            }
        }
    }
}
