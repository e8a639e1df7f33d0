//! Intent declarations of tool calls: checks 2 to 6 of behaviour, section 5, with the exact texts of R1 and R2.

use std::borrow::Cow;
use std::fmt;

use super::json;
use super::operation::{OperationType, Variant};
use super::refusal::{Code, Refusal};
use super::text_enum::text_enum;

/// Most characters of `intent.reason` (R1 FR-010).
pub const REASON_CHARS_MAX: usize = 1000;

text_enum! {
    /// Value of the setting `intent_declaration`.
    pub enum IntentMode {
        /// R2: the tool variant decides, and a declaration is optional.
        Inferred = "inferred",
        /// R1: the declaration is required, and must agree with the tool variant.
        Required = "required",
    }
}

/// Declaration as the caller sent it: raw JSON values, unchecked.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawIntent<'a> {
    /// The nested object `intent`.
    pub nested: Option<&'a str>,
    /// The flat `intent_operation_type`.
    pub operation_type: Option<&'a str>,
    /// The flat `intent_data_sensitivity`.
    pub data_sensitivity: Option<&'a str>,
    /// The flat `intent_reason`.
    pub reason: Option<&'a str>,
}

/// Declaration that passed checks 2 to 6.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intent {
    /// Declared operation type; `None` when the caller declared none.
    pub operation_type: Option<OperationType>,
    /// Declared sensitivity: `public`, `internal`, `private` or `unknown`.
    pub data_sensitivity: Option<String>,
    /// Reason of the call, in the caller's words.
    pub reason: Option<String>,
}

/// Runs checks 2 to 6 on a declaration.
///
/// # Errors
/// The refusal of the first check that fails, with the parts of the declaration that were read, for the record.
pub fn check(
    raw: &RawIntent<'_>,
    variant: Variant,
    mode: IntentMode,
) -> Result<Intent, Box<(Refusal, Intent)>> {
    let mut intent = Intent::default();
    match check_into(&mut intent, raw, variant, mode) {
        Ok(()) => Ok(intent),
        Err(refusal) => Err(Box::new((refusal, intent))),
    }
}

fn check_into(
    intent: &mut Intent,
    raw: &RawIntent<'_>,
    variant: Variant,
    mode: IntentMode,
) -> Result<(), Refusal> {
    let texts = Texts::read(raw)?;
    let expected = variant.operation();
    if let Some(text) = &texts.operation_type {
        intent.operation_type = Some(OperationType::parse(text).ok_or_else(|| unknown_operation(text))?);
    }
    intent.data_sensitivity = texts.data_sensitivity.as_deref().map(clip);
    intent.reason = texts.reason.as_deref().map(clip);
    match intent.operation_type {
        None if mode == IntentMode::Required => {
            return Err(
                Refusal::new(Code::MissingIntent, "intent.operation_type is required").expecting(expected)
            );
        }
        Some(declared) if declared != expected => {
            let message = format!(
                "Intent mismatch: tool is {} but intent declares {}",
                variant.as_str(),
                declared.as_str()
            );
            return Err(Refusal::new(Code::IntentMismatch, message)
                .expecting(expected)
                .recommending(declared.variant()));
        }
        _ => {}
    }
    check_sensitivity(texts.data_sensitivity.as_deref())?;
    check_reason(texts.reason.as_deref())
}

fn unknown_operation(text: &str) -> Refusal {
    let shown = clip(text);
    Refusal::new(
        Code::InvalidIntent,
        format!("Invalid intent.operation_type '{shown}': must be read, write, or destructive"),
    )
}

fn check_sensitivity(value: Option<&str>) -> Result<(), Refusal> {
    match value {
        None | Some("public" | "internal" | "private" | "unknown") => Ok(()),
        Some(other) => {
            let shown = clip(other);
            Err(Refusal::new(
                Code::InvalidSensitivity,
                format!(
                    "Invalid intent.data_sensitivity '{shown}': must be public, internal, private, or unknown"
                ),
            ))
        }
    }
}

fn check_reason(value: Option<&str>) -> Result<(), Refusal> {
    match value {
        Some(text) if text.chars().count() > REASON_CHARS_MAX => Err(Refusal::new(
            Code::ReasonTooLong,
            format!("intent.reason exceeds maximum length of {REASON_CHARS_MAX} characters"),
        )),
        _ => Ok(()),
    }
}

/// Cuts a caller's text to [`REASON_CHARS_MAX`] characters, for records and messages.
fn clip(text: &str) -> String {
    text.chars().take(REASON_CHARS_MAX).collect()
}

/// The three declared values as texts, merged from the nested and the flat form (check 2).
struct Texts {
    operation_type: Option<String>,
    data_sensitivity: Option<String>,
    reason: Option<String>,
}

impl Texts {
    fn read(raw: &RawIntent<'_>) -> Result<Texts, Refusal> {
        let nested = nested_members(raw.nested)?;
        let member = |name: &str| nested.iter().find(|m| m.name == name).map(|m| m.value);
        Ok(Texts {
            operation_type: merge("operation_type", member("operation_type"), raw.operation_type)?,
            data_sensitivity: merge("data_sensitivity", member("data_sensitivity"), raw.data_sensitivity)?,
            reason: merge("reason", member("reason"), raw.reason)?,
        })
    }
}

fn nested_members(nested: Option<&str>) -> Result<Vec<json::Member<'_>>, Refusal> {
    match nested {
        None | Some("null" | "\"\"") => Ok(Vec::new()),
        Some(text) => json::members(text).map_err(|_| {
            Refusal::new(
                Code::InvalidIntent,
                "Invalid intent: must be an object with operation_type, data_sensitivity, reason",
            )
        }),
    }
}

fn merge(name: &str, nested: Option<&str>, flat: Option<&str>) -> Result<Option<String>, Refusal> {
    let nested = text(format_args!("intent.{name}"), nested)?;
    let flat = text(format_args!("intent_{name}"), flat)?;
    match (nested, flat) {
        (Some(nested), Some(flat)) if nested != flat => Err(Refusal::new(
            Code::InvalidIntent,
            format!("Invalid intent: intent.{name} and intent_{name} say different things"),
        )),
        (nested, flat) => Ok(nested.or(flat)),
    }
}

/// Parses a raw JSON string; `null` and `""` count as not declared.
fn text(name: fmt::Arguments<'_>, raw: Option<&str>) -> Result<Option<String>, Refusal> {
    let Some(raw) = raw.filter(|raw| *raw != "null") else {
        return Ok(None);
    };
    let text: Cow<'_, str> = serde_json::from_str::<String>(raw)
        .map(Cow::Owned)
        .map_err(|_| Refusal::new(Code::InvalidIntent, format!("Invalid {name}: must be a string")))?;
    Ok((!text.is_empty()).then(|| text.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(raw: RawIntent<'_>, variant: Variant, mode: IntentMode) -> Result<Intent, (Code, String)> {
        check(&raw, variant, mode).map_err(|e| (e.0.code, e.0.message))
    }

    fn nested(text: &str) -> RawIntent<'_> {
        RawIntent { nested: Some(text), ..RawIntent::default() }
    }

    #[test]
    fn every_pair_of_variant_and_declared_type() {
        let types = [OperationType::Read, OperationType::Write, OperationType::Destructive];
        for variant in Variant::ALL {
            for declared in types {
                for mode in [IntentMode::Inferred, IntentMode::Required] {
                    let object = format!(r#"{{"operation_type":"{}"}}"#, declared.as_str());
                    let flat = format!("\"{}\"", declared.as_str());
                    let encodings =
                        [nested(&object), RawIntent { operation_type: Some(&flat), ..RawIntent::default() }];
                    for raw in encodings {
                        let result = run(raw, variant, mode);
                        if variant.operation() == declared {
                            assert_eq!(result.expect("agrees").operation_type, Some(declared));
                        } else {
                            let text = format!(
                                "Intent mismatch: tool is {} but intent declares {}",
                                variant.as_str(),
                                declared.as_str()
                            );
                            assert_eq!(result, Err((Code::IntentMismatch, text)));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn nothing_declared_is_fine_only_when_inferred() {
        let forms = [
            RawIntent::default(),
            nested("{}"),
            nested("null"),
            nested("\"\""),
            nested(r#"{"operation_type":""}"#),
        ];
        for raw in forms {
            assert_eq!(run(raw, Variant::Read, IntentMode::Inferred), Ok(Intent::default()));
            assert_eq!(
                run(raw, Variant::Read, IntentMode::Required),
                Err((Code::MissingIntent, "intent.operation_type is required".into()))
            );
        }
    }

    #[test]
    fn malformed_declarations() {
        let cases = [
            (
                nested(r#"{"operation_type":"x"}"#),
                Code::InvalidIntent,
                "Invalid intent.operation_type 'x': must be read, write, or destructive",
            ),
            (
                nested(r#"{"data_sensitivity":"secret"}"#),
                Code::InvalidSensitivity,
                "Invalid intent.data_sensitivity 'secret': must be public, internal, private, or unknown",
            ),
            (nested(r#"{"reason":7}"#), Code::InvalidIntent, "Invalid intent.reason: must be a string"),
            (
                nested(r#"["read"]"#),
                Code::InvalidIntent,
                "Invalid intent: must be an object with operation_type, data_sensitivity, reason",
            ),
            (
                RawIntent {
                    nested: Some(r#"{"reason":"a"}"#),
                    reason: Some(r#""b""#),
                    ..RawIntent::default()
                },
                Code::InvalidIntent,
                "Invalid intent: intent.reason and intent_reason say different things",
            ),
        ];
        for (raw, code, text) in cases {
            assert_eq!(run(raw, Variant::Read, IntentMode::Inferred), Err((code, text.to_owned())));
        }
    }

    #[test]
    fn every_text_is_documented() {
        let page = include_str!("../../docs/intent.md");
        let long = format!(r#"{{"reason":"{}"}}"#, "a".repeat(1001));
        let both =
            RawIntent { nested: Some(r#"{"reason":"a"}"#), reason: Some(r#""b""#), ..RawIntent::default() };
        for raw in [
            RawIntent::default(),
            both,
            nested("7"),
            nested(&long),
            nested(r#"{"reason":7}"#),
            nested(r#"{"operation_type":"x"}"#),
            nested(r#"{"operation_type":"write"}"#),
            nested(r#"{"operation_type":"read","data_sensitivity":"secret"}"#),
        ] {
            let mode = if raw.nested == Some(&long) { IntentMode::Inferred } else { IntentMode::Required };
            let (_, said) = run(raw, Variant::Read, mode).unwrap_err();
            assert!(page.contains(&format!("`{said}`")), "docs/intent.md has not: {said}");
        }
    }

    #[test]
    fn the_reason_is_counted_in_characters() {
        let fits = format!("\"{}\"", "é".repeat(1000));
        let over = format!("\"{}\"", "é".repeat(1001));
        let raw = |reason| RawIntent { reason: Some(reason), ..RawIntent::default() };
        assert!(run(raw(&fits), Variant::Write, IntentMode::Inferred).is_ok());
        assert_eq!(
            run(raw(&over), Variant::Write, IntentMode::Inferred),
            Err((Code::ReasonTooLong, "intent.reason exceeds maximum length of 1000 characters".into()))
        );
    }

    #[test]
    fn the_order_of_the_checks() {
        // 2 before 3 before 4 before 5 before 6
        let long =
            format!(r#"{{"operation_type":"write","data_sensitivity":"x","reason":"{}"}}"#, "a".repeat(1001));
        assert_eq!(
            run(nested(&long), Variant::Read, IntentMode::Required).unwrap_err().0,
            Code::IntentMismatch
        );
        assert_eq!(
            run(nested(&long), Variant::Write, IntentMode::Required).unwrap_err().0,
            Code::InvalidSensitivity
        );
        let only = r#"{"data_sensitivity":"x"}"#;
        assert_eq!(
            run(nested(only), Variant::Write, IntentMode::Required).unwrap_err().0,
            Code::MissingIntent
        );
    }
}
