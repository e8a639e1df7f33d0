//! Facts that the checks of a request establish. The checks note them here; one function writes them into the record, and
//! refusals repeat them.

use bytes::Bytes;

use super::door::Door;
use super::outcome::Refused;
use crate::domain::activity::Record;
use crate::domain::annotations::Tier;
use crate::domain::intent::Intent;
use crate::domain::operation::Variant;
use crate::domain::redact;
use crate::domain::refusal::Refusal;

/// Facts about one request, as far as its checks came.
#[derive(Debug)]
pub(in crate::gateway::calls) struct Facts {
    door: Door,
    /// Name for refusals: canonical once the tool is known, and what the caller sent before that.
    pub(super) subject: Option<String>,
    /// Server and tool for the record, under their own names.
    tool: Option<(Option<String>, String)>,
    /// Variant of the call; `None` for prompts and resources, and by [`Door::Direct`] while the tool is not known.
    pub(super) variant: Option<Variant>,
    /// Tier of the tool for this key; `None` while the tool is not known.
    pub(super) tier: Option<Tier>,
    /// Declared intent.
    pub(super) intent: Intent,
    /// Arguments object, raw; `None` while it is not known to be one.
    pub(super) arguments: Option<Bytes>,
    /// Warnings of the checks, in the order in which they arose.
    pub(super) warnings: Vec<String>,
    /// True if a refusal may be in `structuredContent`.
    pub(super) is_structured: bool,
}

impl Facts {
    /// Returns the facts about a request by this door before any check.
    pub(in crate::gateway::calls) fn new(door: Door) -> Facts {
        Facts {
            door,
            subject: None,
            tool: None,
            variant: door.variant(),
            tier: None,
            intent: Intent::default(),
            arguments: None,
            warnings: Vec::new(),
            is_structured: door != Door::Direct,
        }
    }

    /// Notes server and tool, under the server's own names or, of unknown ones, as the caller spelt them.
    pub(super) fn note_tool(&mut self, server: Option<&str>, tool: &str) {
        self.tool = Some((server.map(str::to_owned), tool.to_owned()));
    }

    /// Returns the door.
    pub(super) fn door(&self) -> Door {
        self.door
    }

    /// Returns a refusal of this request.
    pub(super) fn refused(self, refusal: Refusal) -> Refused {
        Refused {
            refusal,
            tool: self.subject,
            variant: self.variant,
            declared: self.intent.operation_type,
            is_structured: self.is_structured,
        }
    }

    /// Writes the facts into a record. Texts of callers and servers are redacted, and the arguments are cut to
    /// `preview_bytes`.
    pub(in crate::gateway::calls) fn write_into(&self, record: &mut Record, preview_bytes: usize) {
        let clean = |text: &String| redact::redact(text).into_owned();
        if let Some((server, tool)) = &self.tool {
            record.server.clone_from(server);
            record.tool = Some(clean(tool));
        }
        let Intent { operation_type, data_sensitivity, reason } = &self.intent;
        let undeclared = self.variant.map(Variant::operation).or(self.tier.map(Tier::operation));
        record.tool_variant = self.variant;
        record.tier = self.tier;
        record.operation_type = operation_type.or(undeclared);
        record.intent_declared = operation_type.is_some();
        record.data_sensitivity = data_sensitivity.as_ref().map(clean);
        record.reason = reason.as_ref().map(clean);
        self.warnings.iter().for_each(|warning| record.warn(warning));
        if let Some(arguments) = &self.arguments {
            let preview = redact::preview_raw(arguments, preview_bytes);
            record.request_bytes = i64::try_from(arguments.len()).ok();
            record.truncated |= preview.truncated;
            record.arguments = Some(preview.text);
        }
    }
}
