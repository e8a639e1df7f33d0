//! The question whether to revoke a key.

use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;
use uuid::Uuid;

use super::one::other;
use super::{LIST_MEMORY_BYTES, has_ended, href_of, id_of};
use crate::domain::id::KeyId;
use crate::domain::tenant::Action;
use crate::faces::console::nav::Section;
use crate::faces::console::page_visit::PageVisit;
use crate::faces::console::question::{ActQuestion, QuestionPage};
use crate::faces::query::params::NONE;
use crate::gateway::GatewayError;
use crate::store::ConsentGrant;

/// Most remembered decisions of the tenant that are looked at.
const GRANTS_MAX: usize = 500;

/// Shows a page about a key beside its main one: the question whether to revoke it.
pub(in crate::faces::console) async fn show_part(
    Path((id, verb)): Path<(String, String)>,
    visit: PageVisit,
) -> Response {
    if verb != "revoke" {
        return visit.failed(Section::Keys, &GatewayError::NotFound("page"));
    }
    visit
        .answer_sensitive("keys.get", Section::Keys, move |visit| {
            Box::pin(async move { question(visit, &id).await })
        })
        .await
}

async fn question(visit: &PageVisit, id: &str) -> Result<Response, GatewayError> {
    visit.caller().authorise(Action::ManageKeys)?;
    visit.needs_tenant()?;
    visit.given(NONE)?;
    visit.expect(LIST_MEMORY_BYTES).await?;
    let id = id_of(id)?;
    let key = visit.gateway().tenants.get_key(visit.caller(), id).await?;
    if has_ended(&key, visit.now()) {
        return Err(GatewayError::Conflict(format!("The key '{}' has ended already.", key.name)));
    }
    let fetched = i64::try_from(GRANTS_MAX).unwrap_or(0) + 1;
    let grants = visit.gateway().consent.list_grants(visit.caller(), Uuid::max(), fetched).await?;
    let successor = other(visit, key.successor).await?;
    let effects = RevocationEffects {
        has_session: visit.caller().key == Some(id),
        has_successor: successor.is_some_and(|successor| !has_ended(&successor, visit.now())),
        ..RevocationEffects::of(id, &grants)
    };
    let question = ActQuestion {
        act: format!("Revoke {}", key.name),
        says: effects.text().into(),
        keep: "Keep it",
        verb: "revoke",
    };
    let page = QuestionPage::new(visit, Section::Keys, (key.name, href_of(id)), question);
    visit.show(StatusCode::OK, &page).await
}

/// Things that end with a key.
#[derive(Default)]
struct RevocationEffects {
    /// Number of remembered decisions.
    grants: usize,
    /// Number of those that are about calls of other keys.
    grants_of_others: usize,
    /// True if there are more decisions than were looked at.
    has_more: bool,
    /// True if the visitor's session is one of the key.
    has_session: bool,
    /// True if another key took the place of the key, and works.
    has_successor: bool,
}

impl RevocationEffects {
    /// Counts the decisions that end with a key among the newest of its tenant.
    fn of(key: KeyId, newest: &[ConsentGrant]) -> RevocationEffects {
        let is_ending = |grant: &&ConsentGrant| [grant.principal, grant.granted_by].contains(&key.0);
        let ending: Vec<&ConsentGrant> = newest.iter().take(GRANTS_MAX).filter(is_ending).collect();
        RevocationEffects {
            grants: ending.len(),
            grants_of_others: ending.iter().filter(|grant| grant.principal != key.0).count(),
            has_more: newest.len() > GRANTS_MAX,
            ..RevocationEffects::default()
        }
    }

    /// Returns the consequences of a revocation in words.
    fn text(&self) -> String {
        let mut text =
            "Calls with it are refused from then on, and its permission requests that wait end.".to_owned();
        if self.grants > 0 {
            let least = if self.has_more { "At least " } else { "" };
            let decisions = match self.grants {
                1 => "1 remembered decision ends".to_owned(),
                number => format!("{number} remembered decisions end"),
            };
            text.push_str(&format!(" {least}{decisions} with it"));
            text.push_str(&match self.grants_of_others {
                0 => ".".to_owned(),
                others => format!(", {others} of them about calls of other keys: these ask again."),
            });
        }
        if self.has_session {
            text.push_str(" Your session is one of this key, and ends with it.");
        }
        text.push_str(" This cannot be undone.");
        text.push_str(match self.has_successor {
            true => " The key that replaced it works on.",
            false => " To change the secret alone, replace the key.",
        });
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_says_what_ends() {
        let says = |grants, grants_of_others, has_more, has_session| {
            RevocationEffects { grants, grants_of_others, has_more, has_session, has_successor: false }.text()
        };
        let none = says(0, 0, true, false);
        assert!(!none.contains("decision") && !none.contains("session"), "{none}");
        let one = says(1, 0, false, true);
        assert!(one.contains(" 1 remembered decision ends with it. Your session"), "{one}");
        let two = says(2, 1, true, false);
        assert!(two.contains(" At least 2 remembered decisions end with it, 1 of them about calls"), "{two}");
    }
}
