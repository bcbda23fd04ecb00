//! Text of a rule to an [`Expression`], by recursive descent.
//!
//! ```text
//! expression = binary [ "?" expression ":" expression ]
//! binary     = unary, joined by the operators of LEVELS, loosest first
//! unary      = "!" unary | member
//! member     = primary { "." field | "." function "(" arguments ")" }
//! primary    = literal | variable | function "(" arguments ")" | "[" list "]" | "(" expression ")"
//! ```

use serde_json::Value;

use super::{CelError, Expression, Function, Operator, Quantifier};

/// Operators by how tightly they bind, loosest first.
const LEVELS: [&[(&str, Operator)]; 4] = [
    &[("||", Operator::Or)],
    &[("&&", Operator::And)],
    &[
        ("==", Operator::Equal),
        ("!=", Operator::NotEqual),
        ("<=", Operator::LessOrEqual),
        (">=", Operator::GreaterOrEqual),
        ("<", Operator::Less),
        (">", Operator::Greater),
        ("in", Operator::In),
    ],
    &[("*", Operator::Multiply), ("%", Operator::Remainder)],
];

/// Name of each function, and how many arguments it takes with the receiver.
const FUNCTIONS: [(&str, Function, usize); 9] = [
    ("size", Function::Size, 1),
    ("int", Function::Int, 1),
    ("double", Function::Double, 1),
    ("duration", Function::Duration, 1),
    ("getSeconds", Function::GetSeconds, 1),
    ("matches", Function::Matches, 2),
    ("endsWith", Function::EndsWith, 2),
    ("contains", Function::Contains, 2),
    ("replace", Function::Replace, 3),
];

const MACROS: [(&str, Quantifier); 3] = [
    ("all", Quantifier::All),
    ("exists", Quantifier::Exists),
    ("exists_one", Quantifier::ExistsOne),
];

/// Longer ones first, so that `<=` is not read as `<`.
const SYMBOLS: [&str; 19] = [
    "||", "&&", "==", "!=", "<=", ">=", "<", ">", "!", "*", "%", "?", ":", ",", ".", "(", ")", "[",
    "]",
];

#[derive(Clone, Debug, PartialEq)]
enum Token {
    /// A symbol, a name or a word such as `in`.
    Word(String),
    Literal(Value),
}

struct Parser {
    /// What is left of the text, last token first.
    tokens: Vec<Token>,
    /// Names that are bound here.
    variables: Vec<String>,
}

// === impl Expression ===

impl Expression {
    /// Reads the text of a rule.
    ///
    /// # Errors
    /// The text is not CEL, or uses what [`Expression`] does not know.
    pub(crate) fn parse(text: &str) -> Result<Self, CelError> {
        let mut tokens = tokens(text)?;
        tokens.reverse();
        let variables = vec!["self".to_owned()];
        let mut parser = Parser { tokens, variables };
        let expression = parser.expression()?;
        match parser.tokens.last() {
            None => Ok(expression),
            Some(token) => Err(CelError(format!("unexpected {token:?}"))),
        }
    }
}

// === impl Parser ===

impl Parser {
    fn expression(&mut self) -> Result<Expression, CelError> {
        let condition = self.binary(&LEVELS)?;
        if !self.take("?") {
            return Ok(condition);
        }
        let yes = self.expression()?;
        self.expect(":")?;
        let no = self.expression()?;
        Ok(Expression::Conditional(Box::new([condition, yes, no])))
    }

    fn binary(&mut self, levels: &[&[(&str, Operator)]]) -> Result<Expression, CelError> {
        let Some((operators, tighter)) = levels.split_first() else {
            return self.unary();
        };
        let mut left = self.binary(tighter)?;
        while let Some((_, operator)) = operators.iter().find(|(text, _)| self.take(text)) {
            let right = self.binary(tighter)?;
            left = Expression::Binary(Box::new(left), *operator, Box::new(right));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expression, CelError> {
        if self.take("!") {
            return Ok(Expression::Not(Box::new(self.unary()?)));
        }
        let mut member = self.primary()?;
        while self.take(".") {
            let name = self.name()?;
            member = if !self.take("(") {
                Expression::Field(Box::new(member), name)
            } else if let Some((_, quantifier)) = MACROS.iter().find(|(text, _)| *text == name) {
                self.quantified(member, *quantifier)?
            } else {
                self.call(&name, vec![member])?
            };
        }
        Ok(member)
    }

    fn primary(&mut self) -> Result<Expression, CelError> {
        if self.take("(") {
            let inner = self.expression()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.take("[") {
            return self.list("]", Vec::new()).map(Expression::List);
        }
        if let Some(Token::Literal(value)) = self.tokens.last() {
            let value = value.clone();
            self.tokens.pop();
            return Ok(Expression::Literal(value));
        }
        let name = self.name()?;
        if self.take("(") {
            return self.call(&name, Vec::new());
        }
        match name.as_str() {
            "true" => Ok(Expression::Literal(true.into())),
            "false" => Ok(Expression::Literal(false.into())),
            _ if self.variables.contains(&name) => Ok(Expression::Variable(name)),
            _ => Err(CelError(format!("unknown variable {name}"))),
        }
    }

    /// A macro, after its opening parenthesis.
    fn quantified(
        &mut self,
        list: Expression,
        quantifier: Quantifier,
    ) -> Result<Expression, CelError> {
        let variable = self.name()?;
        self.expect(",")?;
        self.variables.push(variable.clone());
        let condition = Box::new(self.expression()?);
        self.variables.pop();
        self.expect(")")?;
        Ok(Expression::Macro {
            list: Box::new(list),
            quantifier,
            variable,
            condition,
        })
    }

    /// A call, after its opening parenthesis.
    fn call(&mut self, name: &str, receiver: Vec<Expression>) -> Result<Expression, CelError> {
        let mut arguments = self.list(")", receiver)?;
        if name == "has" {
            return match (arguments.pop(), arguments.is_empty()) {
                (Some(Expression::Field(of, name)), true) => Ok(Expression::Has(of, name)),
                _ => Err(CelError("has takes one field".to_owned())),
            };
        }
        let function = FUNCTIONS.iter().find(|(text, ..)| *text == name);
        match function {
            Some((_, function, takes)) if *takes == arguments.len() => {
                Ok(Expression::Call(*function, arguments))
            }
            Some((_, _, takes)) => Err(CelError(format!("{name} takes {takes} arguments"))),
            None => Err(CelError(format!("unknown function {name}"))),
        }
    }

    /// Expressions with commas between them, up to and with `end`, added to `items`.
    fn list(&mut self, end: &str, mut items: Vec<Expression>) -> Result<Vec<Expression>, CelError> {
        if self.take(end) {
            return Ok(items);
        }
        loop {
            items.push(self.expression()?);
            if self.take(end) {
                return Ok(items);
            }
            self.expect(",")?;
        }
    }

    fn name(&mut self) -> Result<String, CelError> {
        match self.tokens.pop() {
            Some(Token::Word(word)) if word.starts_with(is_letter) => Ok(word),
            token => Err(CelError(format!("expected a name, found {token:?}"))),
        }
    }

    fn expect(&mut self, word: &str) -> Result<(), CelError> {
        if self.take(word) {
            return Ok(());
        }
        let found = self.tokens.last();
        Err(CelError(format!("expected {word}, found {found:?}")))
    }

    /// Whether `word` comes next; if so, it is taken.
    fn take(&mut self, word: &str) -> bool {
        let next = matches!(self.tokens.last(), Some(Token::Word(next)) if next == word);
        if next {
            self.tokens.pop();
        }
        next
    }
}

fn is_letter(c: char) -> bool {
    c == '_' || c.is_ascii_alphabetic()
}

fn tokens(text: &str) -> Result<Vec<Token>, CelError> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let end_of = |part: fn(char) -> bool| rest.find(|c| !part(c)).unwrap_or(rest.len());
        let (token, after) = if first == '\'' || first == '"' {
            let (text, length) = quoted(rest, first)?;
            (Token::Literal(text.into()), rest.split_at(length).1)
        } else if first.is_ascii_digit() {
            let (digits, after) = rest.split_at(end_of(|c| c == '.' || c.is_ascii_digit()));
            (Token::Literal(number(digits)?), after)
        } else if is_letter(first) {
            let (word, after) = rest.split_at(end_of(|c| is_letter(c) || c.is_ascii_digit()));
            (Token::Word(word.to_owned()), after)
        } else {
            let symbol = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol));
            let symbol = symbol.ok_or_else(|| CelError(format!("unexpected {first:?}")))?;
            let (word, after) = rest.split_at(symbol.len());
            (Token::Word(word.to_owned()), after)
        };
        tokens.push(token);
        rest = after.trim_start();
    }
    Ok(tokens)
}

fn number(text: &str) -> Result<Value, CelError> {
    let value = if text.contains('.') {
        text.parse::<f64>().ok().map(Value::from)
    } else {
        text.parse::<i64>().ok().map(Value::from)
    };
    value.ok_or_else(|| CelError(format!("{text} is not a number")))
}

/// The text in quotes at the start of `rest`, and how long it is with them.
fn quoted(rest: &str, quote: char) -> Result<(String, usize), CelError> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some((_, escaped @ ('\\' | '\'' | '"'))) => text.push(escaped),
                other => return Err(CelError(format!("unknown escape {other:?}"))),
            },
            c if c == quote => return Ok((text, at + 1)),
            c => text.push(c),
        }
    }
    Err(CelError(format!("no closing {quote}")))
}
