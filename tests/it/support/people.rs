//! People of a tenant, who come with tokens of a provider: callers beside those with keys.

use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::api::Api;
use super::idp::Idp;
use super::stage::{Stage, Tenant};

/// Audience of the tokens, which the provider's entry names: the gateway needs no public URL.
const AUDIENCE: &str = "people";
const RULES: &str = "/api/v1/identity/rules";

/// Provider of a tenant whose people have what a test gives each of them, by a rule of its own.
pub struct People {
    idp: Idp,
    admin: Api,
    anonymous: Api,
    rules: Mutex<Vec<Value>>,
}

impl People {
    /// The people of a tenant that has no rules yet.
    pub async fn of(stage: &Stage, tenant: &Tenant, name: &str) -> People {
        People::with_issuer(stage, tenant, (name, name)).await
    }

    /// The people of a tenant who come from the issuer of this name. Rules that were given through others are replaced.
    pub async fn with_issuer(stage: &Stage, tenant: &Tenant, (name, issuer): (&str, &str)) -> People {
        let idp = Idp::start().await;
        let issuer = json!({"name": issuer, "issuer": idp.url, "audiences": [AUDIENCE], "tenant": name});
        stage.platform().post("/api/v1/issuers", &issuer).await.expect(201);
        let (admin, anonymous) = (tenant.platform.clone(), stage.gateway.anonymous());
        People { idp, admin, anonymous, rules: Mutex::default() }
    }

    /// The provider of the people.
    pub fn provider(&self) -> &Idp {
        &self.idp
    }

    /// A new person with this role and these settings; `id` is that of the identity.
    pub async fn person(&self, role: &str, settings: Value) -> Api {
        let subject = {
            let mut rules = self.rules.lock().await;
            let subject = format!("person-{}", rules.len());
            let condition = json!({"claim": "sub", "op": "equals", "value": subject});
            rules.push(json!({"conditions": [condition], "role": role, "settings": settings}));
            self.put(&rules).await;
            subject
        };
        let caller = self.anonymous.with_key(&self.idp.token(&subject, AUDIENCE, json!({})));
        let status = caller.get("/api/v1/status").await.expect(200);
        assert_eq!(status["role"], role, "{status}");
        Api { id: status["identity_id"].as_str().unwrap().to_owned(), ..caller }
    }

    /// Somebody once more, with a new token.
    pub fn again(&self, person: &Api, subject: &str) -> Api {
        self.with_claims(person, subject, json!({"jti": "another"}))
    }

    /// Somebody once more, with a token of these claims.
    pub fn with_claims(&self, person: &Api, subject: &str, claims: Value) -> Api {
        Api { id: person.id.clone(), ..self.anonymous.with_key(&self.token(subject, claims)) }
    }

    /// A token that opens the gateway as this person.
    pub fn token(&self, subject: &str, claims: Value) -> String {
        self.idp.token(subject, AUDIENCE, claims)
    }

    /// Gives everybody these settings instead.
    pub async fn change(&self, settings: Value) {
        let mut rules = self.rules.lock().await;
        rules.iter_mut().for_each(|rule| rule["settings"] = settings.clone());
        self.put(&rules).await;
    }

    async fn put(&self, rules: &[Value]) {
        let version = self.admin.get(RULES).await.expect(200)["version"].clone();
        let body = json!({"version": version, "rules": rules});
        self.admin.ask(reqwest::Method::PUT, RULES, Some(&body)).await.expect(200);
    }
}
