//! Acts of visitors that REST has too, with the rights and the records of its routes.

use std::sync::Arc;

use serde_json::{Map, Value};
use uuid::Uuid;

use super::page_visit::PageVisit;
use crate::domain::tenant::Action;
use crate::gateway::{Act, GatewayError};

/// Act of a visitor.
pub(super) struct VisitorAct {
    /// Name in the activity log, that of the REST route.
    pub(super) what: &'static str,
    /// Action that the visitor's role must allow.
    pub(super) needs: Action,
    /// Server that the act concerns; `None` for other acts.
    pub(super) server: Option<String>,
    /// Tool that the act, or its permission request, concerns; `None` for other acts.
    pub(super) tool: Option<String>,
    /// Permission request that the act concerns; `None` for other acts.
    pub(super) consent_id: Option<Uuid>,
    /// Fields of the form that say what is done, by name.
    pub(super) fields: Vec<(&'static str, String)>,
    /// Body of the same act over REST, without credentials, in place of `fields`; `None` for an act whose fields say it all.
    pub(super) sent: Option<Value>,
}

impl VisitorAct {
    /// Returns an act that concerns no permission request and has no fields.
    pub(super) fn new(what: &'static str, needs: Action) -> VisitorAct {
        VisitorAct { what, needs, server: None, tool: None, consent_id: None, fields: Vec::new(), sent: None }
    }

    /// Returns `{"path", "tool"?, "body"?}`, as records of REST have it.
    fn body(&self, path: &str) -> String {
        let mut body = Map::new();
        body.insert("path".to_owned(), Value::from(path));
        if let Some(tool) = &self.tool {
            body.insert("tool".to_owned(), Value::from(tool.as_str()));
        }
        if let Some(sent) = &self.sent {
            body.insert("body".to_owned(), sent.clone());
        } else if !self.fields.is_empty() {
            let field = |(name, value): &(&str, String)| ((*name).to_owned(), Value::from(value.as_str()));
            body.insert("body".to_owned(), Value::Object(self.fields.iter().map(field).collect()));
        }
        Value::Object(body).to_string()
    }
}

/// Runs an act and records it, before it is done and however it ends. It outlives its connection. An act that the
/// role forbids, or that takes a tenant and has none, is refused before anything else is looked at.
///
/// # Errors
/// Error of the role or of `work`, or [`GatewayError::Unavailable`] if the act could not be recorded.
pub(super) async fn perform<T: Send + 'static>(
    visit: &PageVisit,
    act: VisitorAct,
    work: impl Future<Output = Result<T, GatewayError>> + Send + 'static,
) -> Result<T, GatewayError> {
    let (gateway, attempt) = (Arc::clone(visit.gateway()), visit.attempt_for(act.needs));
    let body = act.body(visit.path());
    let allowed = visit.allowed(&attempt, act.needs);
    let recorded = async move {
        let VisitorAct { what, server, consent_id, .. } = act;
        let act = Act { what, server: server.as_deref(), body: Some(&body), consent_id };
        let log = &gateway.log;
        if let Err(error) = allowed {
            if log.keeps_forbidden(&attempt) {
                log.record_refused_act(&attempt, &act, &error).await?;
            }
            return Err(error);
        }
        let acting = log.begin_act(&attempt, &act).await?;
        let done = work.await;
        log.end_act(&attempt, acting, done.as_ref().map(|_| ()));
        done
    };
    visit.gateway().log.outlive(recorded).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn records_have_the_shape_of_those_of_rest() {
        let mut act = VisitorAct::new("consent.decide", Action::DecideConsent);
        assert_eq!(act.body("/console/x"), r#"{"path":"/console/x"}"#);
        act.tool = Some("a\"b".to_owned());
        act.fields = vec![("decision", "allow_once".to_owned())];
        let body: Value = serde_json::from_str(&act.body("/x")).unwrap();
        assert_eq!(body, json!({"path": "/x", "tool": "a\"b", "body": {"decision": "allow_once"}}));
        act.sent = Some(json!({"enabled": true}));
        let body: Value = serde_json::from_str(&act.body("/x")).unwrap();
        assert_eq!(body["body"], json!({"enabled": true}));
    }
}
