//! Tests of the route table against the router.

use std::collections::HashSet;

use axum::body::Body;
use axum::response::Response;
use axum::routing::on;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use tower_service::Service;

use super::*;

/// Returns the table's routes, each with a handler that answers 200. The paths, methods and fallbacks are the real ones.
fn stubs() -> Router {
    assemble(ROUTES.iter().map(|(method, path)| {
        let method = MethodFilter::try_from(method.parse::<Method>().unwrap()).unwrap();
        (*path, on(method, async || "here"))
    }))
    .with_state(())
}

async fn ask(method: &str, path: &str) -> Response {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .extension(RequestId("r".into()))
        .body(Body::empty())
        .unwrap();
    stubs().call(request).await.unwrap()
}

async fn text(response: Response) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

fn concrete(path: &str) -> String {
    path.replace("{name}", "a-name").replace("{id}", "an-id").replace("{tool}", "a%2Ftool")
}

#[test]
fn the_real_table_can_be_served() {
    // axum panics on paths that overlap or are malformed, and on a method given twice
    drop(router());
    let unique: HashSet<_> = ROUTES.iter().collect();
    assert_eq!((unique.len(), table().len()), (ROUTES.len(), ROUTES.len()));
}

/// Checks that reads which need a managing role are `sensitive`: recorded whether they succeed or fail.
#[test]
fn what_few_may_read_is_sensitive() {
    let few = ["ManageKeys", "ManageTenants", "ChangeServers", "Approve"];
    let mut seen = 0;
    for (method, path, kind, row) in ROWS.iter().filter(|(method, ..)| *method == "GET") {
        if few.iter().any(|action| row.contains(action)) {
            seen += 1;
            assert_eq!(*kind, "sensitive", "{method} {path}");
        }
    }
    assert!(seen >= 7, "the test has lost sight of the table: {seen}");
}

#[tokio::test]
async fn every_listed_route_is_served() {
    for (method, path) in ROUTES {
        let response = ask(method, &concrete(path)).await;
        assert_eq!(response.status(), StatusCode::OK, "{method} {path}");
    }
}

#[tokio::test]
async fn other_methods_are_answered_in_json_with_allow() {
    let paths: HashSet<&str> = ROUTES.iter().map(|(_, path)| *path).collect();
    for path in paths {
        let allowed: HashSet<&str> =
            ROUTES.iter().filter(|(_, p)| *p == path).map(|(method, _)| *method).collect();
        for method in ["GET", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"] {
            if allowed.contains(method) {
                continue;
            }
            let response = ask(method, &concrete(path)).await;
            assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
            let allow = response.headers()["allow"].to_str().unwrap().to_owned();
            let allow: HashSet<&str> =
                allow.split(',').map(str::trim).filter(|method| *method != "HEAD").collect();
            assert_eq!(allow, allowed, "{method} {path}");
            let body = text(response).await;
            assert!(
                body.contains(r#""code":"invalid_request""#) && body.contains(r#""request_id":"r""#),
                "{body}"
            );
        }
    }
}

#[tokio::test]
async fn everything_else_is_not_found_in_json() {
    for path in ["/", "/nope", "/tenants/", "/keys/a/b", "/servers/a/tools/b", "/servers/a/tools/b/c/approve"]
    {
        let response = ask("GET", path).await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND, "{path}");
        assert!(text(response).await.contains(r#""code":"not_found""#), "{path}");
    }
}
