//! Web pages as servers.

mod autofill;
mod browser;
mod cookies;
mod cookies_of_people;
mod cookies_outdated;
mod demos;
mod execution;
mod form_site;
mod frameworks;
mod ledgers;
mod listing;
mod plan;
mod replies;
mod settings;
mod site;
mod steps;
mod steps_dies;
mod summary;

use serde_json::{Value, json};

use self::site::Site;
use crate::support::{Api, Stage, Tenant};

/// Page with a form that has everything a tool needs.
const SEARCH: &str = r##"<!doctype html><title>Shop</title>
<form id="search" action="/results" method="get" wam-policy-output="data interaction"
    wam-intent-function="search" wam-intent-tool-schema="#search-tool">
  <label for="q">Words</label> <input id="q" name="q" type="search" required>
  <button>Search</button>
  <script type="application/wam-tool+json" id="search-tool">
  {"name": "search_products", "description": "Search the products of this shop.",
   "parameters": {"q": {"type": "string", "description": "Words to search for"}}, "required": ["q"]}
  </script>
</form>"##;

async fn stage() -> (Stage, Tenant) {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    (stage, tenant)
}

/// Adds the pages of a site as `shop`.
async fn add(api: &Api, site: &Site, paths: &[&str], more: Value) -> Value {
    let pages: Vec<String> = paths.iter().map(|path| site.at(path)).collect();
    let mut body = json!({"name": "shop", "kind": "web_page", "pages": pages});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    api.post("/api/v1/servers", &body).await.expect(201)
}
