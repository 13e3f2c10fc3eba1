//! Numbers with check digits.

use std::sync::LazyLock;

use regex::Regex;

use super::constant;

static CREDIT_CARD: LazyLock<Regex> = LazyLock::new(|| {
    constant(
        "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}\
         |3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$",
    )
});

/// The number of a card, with anything between the digits.
pub(super) fn is_credit_card(text: &str) -> bool {
    let number: String = text.chars().filter(char::is_ascii_digit).collect();
    let sum: u32 = digits(&number)
        .rev()
        .enumerate()
        .map(|(at, digit)| match (at % 2, digit * 2) {
            (0, _) => digit,
            (_, doubled) => doubled / 10 + doubled % 10,
        })
        .sum();
    CREDIT_CARD.is_match(&number) && sum.is_multiple_of(10)
}

pub(super) fn is_isbn10(text: &str) -> bool {
    let number = without_gaps(text);
    let Some((head, last)) = number.split_at_checked(9) else { return false };
    let check = match last {
        "X" => 10,
        last if last.len() == 1 && is_number(last) => digits(last).sum(),
        _ => return false,
    };
    let sum: u32 = digits(head).zip(1..).map(|(digit, weight)| digit * weight).sum();
    is_number(head) && (sum + 10 * check).is_multiple_of(11)
}

pub(super) fn is_isbn13(text: &str) -> bool {
    let number = without_gaps(text);
    let sum: u32 =
        digits(&number).zip([1, 3].into_iter().cycle()).map(|(digit, weight)| digit * weight).sum();
    number.len() == 13 && is_number(&number) && sum.is_multiple_of(10)
}

fn without_gaps(text: &str) -> String {
    text.chars().filter(|c| !"-\t\n\x0C\r ".contains(*c)).collect()
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn digits(text: &str) -> impl DoubleEndedIterator<Item = u32> {
    text.bytes().map(|byte| u32::from(byte).saturating_sub(u32::from(b'0')))
}
