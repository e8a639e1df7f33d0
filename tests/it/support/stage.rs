//! A gateway on a database of its own, and the tenants on it.

use std::time::Duration;

use serde_json::{Value, json};

use super::api::Api;
use super::database::Database;
use super::gateway::Gateway;
use super::upstream::Upstream;
use super::wait::eventually;

/// One gateway and its database.
pub struct Stage {
    /// Dropped, so killed, before the database.
    pub gateway: Gateway,
    pub database: Database,
}

impl Stage {
    /// With the settings of all tests.
    pub async fn start() -> Stage {
        Stage::with(&[]).await
    }

    /// With settings of its own on top.
    pub async fn with(settings: &[(&str, &str)]) -> Stage {
        let database = Database::migrated().await;
        Stage { gateway: Gateway::start(&database, settings).await, database }
    }

    /// The platform operator.
    pub fn platform(&self) -> Api {
        self.gateway.platform()
    }

    /// A new tenant.
    pub async fn tenant(&self, name: &str) -> Tenant {
        let platform = self.platform();
        platform.post("/api/v1/tenants", &json!({ "name": name })).await.expect(201);
        Tenant { platform: platform.as_tenant(name), anonymous: self.gateway.anonymous() }
    }
}

/// A tenant; each role is a new key of that role.
pub struct Tenant {
    /// The platform operator, acting as this tenant's admin.
    pub platform: Api,
    anonymous: Api,
}

impl Tenant {
    /// A tenant as this platform operator, and nobody, see it.
    pub fn of(platform: &Api, anonymous: &Api) -> Tenant {
        Tenant { platform: platform.clone(), anonymous: anonymous.clone() }
    }

    pub async fn agent(&self) -> Api {
        self.key(&json!({"role": "agent"})).await
    }

    pub async fn auditor(&self) -> Api {
        self.key(&json!({"role": "auditor"})).await
    }

    pub async fn operator(&self) -> Api {
        self.key(&json!({"role": "operator"})).await
    }

    pub async fn admin(&self) -> Api {
        self.key(&json!({"role": "admin"})).await
    }

    pub async fn approver(&self) -> Api {
        self.key(&json!({"role": "approver"})).await
    }

    /// An agent with settings of its own.
    pub async fn agent_with(&self, settings: Value) -> Api {
        self.key(&json!({"role": "agent", "settings": settings})).await
    }

    /// A key as described.
    pub async fn key(&self, body: &Value) -> Api {
        let made = self.platform.post("/api/v1/keys", body).await.expect(201);
        let key = self.anonymous.with_key(made["key"].as_str().unwrap());
        Api { id: made["id"].as_str().unwrap().to_owned(), ..key }
    }

    /// The successor of a key, which the platform operator rotates.
    pub async fn rotated(&self, key: &Api) -> Api {
        let made =
            self.platform.post(&format!("/api/v1/keys/{}/rotate", key.id), &json!({})).await.expect(201);
        let successor = self.anonymous.with_key(made["key"].as_str().unwrap());
        Api { id: made["id"].as_str().unwrap().to_owned(), ..successor }
    }

    /// Adds an upstream as an admin does; its tools are there when this returns.
    pub async fn add(&self, name: &str, upstream: &Upstream) -> Value {
        self.add_with(name, upstream, json!({})).await
    }

    /// The same with further members of the body.
    pub async fn add_with(&self, name: &str, upstream: &Upstream, more: Value) -> Value {
        self.add_url(name, &upstream.url, more).await
    }

    /// Adds what is at this address.
    pub async fn add_url(&self, name: &str, url: &str, more: Value) -> Value {
        let mut body = json!({"name": name, "kind": "http", "url": url});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let added = self.platform.post("/api/v1/servers", &body).await.expect(201);
        assert_eq!(added["last_error"], Value::Null, "{added}");
        added
    }

    /// Waits until exactly this many records match the query, and all have ended unless open ones are asked for.
    pub async fn records(&self, query: &str, count: usize) -> Vec<Value> {
        let path = format!("/api/v1/activity?{query}");
        let what = format!("{count} records of {query}");
        let open = query.contains("status=pending");
        eventually(&what, Duration::from_secs(10), || {
            let items = self.platform.items(&path);
            async move {
                let items = items.await;
                let ended = open || items.iter().all(|item| item["status"] != "pending");
                (items.len() == count && ended).then_some(items)
            }
        })
        .await
    }
}
