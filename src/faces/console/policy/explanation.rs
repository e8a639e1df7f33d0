//! Explanation of a call that is not made: the form that asks for it, and the answer.

use uuid::Uuid;

use crate::domain::id::KeyId;
use crate::domain::json;
use crate::domain::operation::Variant;
use crate::domain::policy::{Assurance, Entrance, Ruling};
use crate::faces::console::page_visit::PageVisit;
use crate::faces::console::text::not_an_object;
use crate::faces::console::trial::why;
use crate::faces::query::params::one_of;
use crate::gateway::{ExplainRequest, Explained, GatewayError};

/// Form that asks what the policies say of a call.
#[derive(Default)]
pub(super) struct ExplainForm {
    /// Canonical name of the tool.
    pub(super) tool: String,
    /// Arguments, a JSON object; empty for none.
    pub(super) args: String,
    /// Id of the key that would call; empty for one without rules of its own.
    pub(super) key: String,
    variant: String,
    endpoint: String,
    /// Reason why the call was not explained; `None` if it was.
    pub(super) failure: Option<String>,
    /// Name of the field that the reason is about; empty for none.
    pub(super) faulty: String,
}

/// Word to choose.
pub(super) struct WordOption {
    /// The word.
    pub(super) word: &'static str,
    /// True if it is the one chosen.
    pub(super) is_chosen: bool,
}

fn options(words: &[&'static str], chosen: &str) -> Vec<WordOption> {
    words.iter().map(|word| WordOption { word, is_chosen: *word == chosen }).collect()
}

impl ExplainForm {
    /// Takes the fields of the form.
    pub(super) fn of(visit: &PageVisit) -> ExplainForm {
        let field = |name| visit.field(name).trim().to_owned();
        let other = field("key_other");
        ExplainForm {
            tool: field("tool"),
            args: field("args"),
            key: if other.is_empty() { field("key_id") } else { other },
            variant: field("tool_variant"),
            endpoint: field("endpoint"),
            ..ExplainForm::default()
        }
    }

    /// Notes why the call was not explained.
    pub(super) fn fail(&mut self, error: &GatewayError) {
        self.failure = Some(error.to_string());
        if let GatewayError::Invalid { field: Some(field), .. } = error {
            self.faulty.clone_from(field);
        }
    }

    /// Returns whether the reason why the call was not explained is about a field.
    pub(super) fn is_faulty(&self, field: &str) -> bool {
        self.faulty == field
    }

    /// Returns the variants to choose.
    pub(super) fn variants(&self) -> Vec<WordOption> {
        options(&Variant::WORDS, &self.variant)
    }

    /// Returns the ways by which a call may come in, to choose.
    pub(super) fn endpoints(&self) -> Vec<WordOption> {
        options(&Entrance::WORDS, &self.endpoint)
    }

    /// Returns the question.
    ///
    /// # Errors
    /// [`GatewayError::Invalid`] names the field.
    pub(super) fn request(&self) -> Result<ExplainRequest, GatewayError> {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let tool =
            given(&self.tool).ok_or_else(|| GatewayError::invalid("tool", "name a tool: SERVER:TOOL"))?;
        let arguments = given(&self.args).unwrap_or_else(|| "{}".to_owned());
        json::members_of_text(&arguments).map_err(|fault| {
            let text = format!("Arguments (JSON): {}.", not_an_object(&arguments, &fault));
            GatewayError::invalid("args", text)
        })?;
        let key = given(&self.key).map(|key| Uuid::try_parse(&key));
        let key = key
            .transpose()
            .map_err(|_| GatewayError::invalid("key_id", "the key must be the id of a key (a UUID)"))?;
        let variant = given(&self.variant).map(|word| one_of("tool_variant", &word, &Variant::ALL));
        let entrance = given(&self.endpoint).map(|word| one_of("endpoint", &word, &Entrance::ALL));
        Ok(ExplainRequest {
            tool,
            arguments,
            variant: variant.transpose()?,
            key: key.map(KeyId),
            entrance: entrance.transpose()?.unwrap_or(Entrance::Mcp),
        })
    }
}

/// Step that leads to a decision.
pub(super) struct ExplainedStep {
    /// Layer of the step.
    pub(super) layer: &'static str,
    /// Rule of the step; empty for others.
    pub(super) rule: String,
    /// Effect, if the step has one; else empty.
    pub(super) effect: &'static str,
    /// Reason.
    pub(super) why: String,
}

/// Decision about a call that is not made.
pub(super) struct Explanation {
    /// Consequence for the call.
    pub(super) consequence: &'static str,
    /// Effect of the rules.
    pub(super) effect: &'static str,
    /// Rule that decides; `None` if the mode does.
    pub(super) rule: Option<String>,
    /// Mode that holds for the key.
    pub(super) mode: &'static str,
    /// Level of risk, with its reasons.
    pub(super) risk: String,
    /// Persons who may answer, and the ways by which they are asked; `None` where nobody is asked.
    pub(super) asks: Option<String>,
    /// Steps in order.
    pub(super) steps: Vec<ExplainedStep>,
}

impl Explanation {
    /// Creates the answer of an explanation.
    pub(super) fn of(explained: &Explained) -> Explanation {
        let Explained { verdict, trace, mode } = explained;
        let (decision, risk) = (&verdict.decision, verdict.risk);
        let asks = decision.ask.map(|ask| {
            let who = match ask.assurance {
                Assurance::Client => "an approver or admin, or the person at the agent's own client",
                Assurance::Approver => "another person with role approver or admin",
            };
            format!("{who}; by {}", ask.channels.iter().collect::<Vec<_>>().join(", "))
        });
        let steps = trace.iter().map(|step| ExplainedStep {
            layer: step.layer.as_str(),
            rule: step.rule.as_deref().unwrap_or_default().to_owned(),
            effect: step.effect.map_or("", |effect| effect.as_str()),
            why: step.why.clone(),
        });
        Explanation {
            consequence: consequence(decision.ruling, decision.rule.is_some()),
            effect: decision.effect.as_str(),
            rule: decision.rule.as_deref().map(str::to_owned),
            mode: mode.as_str(),
            risk: format!("{}{}", risk.level.as_str(), why(risk)),
            asks,
            steps: steps.collect(),
        }
    }
}

/// Returns the consequence for the call in words; `is_by_rule` says whether a rule decides.
fn consequence(ruling: Ruling, is_by_rule: bool) -> &'static str {
    match ruling {
        Ruling::WouldAsk if is_by_rule => {
            "The policy lets it run: in mode observe rules ask about and deny nothing, unless they have \"enforced\": true. In mode \
             by_risk a person would be asked first."
        }
        Ruling::WouldDeny if is_by_rule => {
            "The policy lets it run: in mode observe rules ask about and deny nothing, unless they have \"enforced\": true. In mode \
             by_risk it would be refused."
        }
        Ruling::Allowed => "The policy lets it run.",
        Ruling::Asked => "The policy asks a person first.",
        Ruling::Denied => "The policy refuses it.",
        Ruling::WouldAsk => {
            "The policy lets it run, as the mode is observe. In mode by_risk a person would be asked first."
        }
        Ruling::WouldDeny => {
            "The policy lets it run, as the mode is observe. In mode by_risk it would be refused."
        }
        Ruling::Delegated => "The policy lets it run: the client asks its user by itself.",
    }
}
