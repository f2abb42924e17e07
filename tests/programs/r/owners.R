# ream.list(): names, types and shares; nothing is evaluated on the way. ream.plot(), ream.status().
source(file.path(Sys.getenv("REAM_TEST_SCRIPTS"), "common.R"))
ISM(TRUE, 1024, Inf)
stopifnot(is.null(ream.list()))
makeActiveBinding("active", function() stop("was evaluated"), globalenv())
delayedAssign("lazy", stop("was evaluated"))

x <- values(8)
whole <- list(a = values(8), deep = list(1, list(values(8))), `odd name` = values(8))
attr(whole, "note") <- raw(8 * MiB)
setClass("Slots", representation(content = "numeric"))
object <- new("Slots", content = values(8))
place <- new.env()
place$inside <- logical(2 * MiB)
counter <- local({ kept <- integer(2 * MiB); function() kept[1] })
sorted <- sort(values(8, 3), method = "radix")
words <- rep("word", MiB)
cyclic <- new.env()
cyclic$self <- cyclic
alias <- x

found <- ream.list()
columns <- c("name", "type", "address", "size", "resident", "stored", "large", "managed")
stopifnot(identical(names(found), columns), nrow(found) == nrow(ISM.list()))
names <- unlist(strsplit(found$name[!is.na(found$name)], "; ", fixed = TRUE))
expected <- c(
  "x", "alias", "whole$a", "whole$deep[[2]][[1]]", "whole$`odd name`", "attr(whole, \"note\")", "object@content",
  "place$inside", "environment(counter)$kept", "sorted", "words"
)
missing <- setdiff(expected, names)
if (length(missing)) stop("not found: ", paste(missing, collapse = "; "), "\nbut ", paste(names, collapse = "; "))
type <- function(name) found$type[vapply(strsplit(found$name, "; ", fixed = TRUE), function(all) name %in% all, NA)]
stopifnot(type("x") == "double", type("place$inside") == "logical", type("words") == "character")
stopifnot(type("attr(whole, \"note\")") == "raw", type("environment(counter)$kept") == "integer")
stopifnot(grepl("alias", found$name[grepl("\\bx\\b", found$name)]))
stopifnot(all(found$resident >= 0 & found$resident <= 1), all(found$stored >= 0 & found$stored <= 1))

# Variables of functions that are running, through one more call, an argument that has its value, and one that has not.
outer <- function(given, never) {
  own <- values(8, 5)
  force(given)
  inner <- function() ream.list()$name
  inner()
}
names <- outer(raw(8 * MiB), stop("was evaluated"))
stopifnot(any(grepl("outer()$own", names, fixed = TRUE)), any(grepl("outer()$given", names, fixed = TRUE)))
attach(list(attached_one = values(8)), name = "mine")
stopifnot(any(grepl("mine$attached_one", ream.list()$name, fixed = TRUE)))
detach("mine")

# Very deep, very wide.
deep <- NULL
for (i in 1:5000) deep <- list(deep)
pairs <- as.pairlist(as.list(1:1e5))
wide <- as.list(seq_len(3e5))
frame <- lm(y ~ z, data.frame(y = runif(1e5), z = runif(1e5)))
stopifnot(is.data.frame(ream.list()))

status <- ream.status()
stopifnot(inherits(status, "ream.status"), status$session == in_session, file.exists(status$library))
stopifnot(length(capture.output(print(status))) == if (in_session) 5 else 4)
stopifnot(in_session == (status$budget > 0), identical(ream.memory(), status$budget))

picture <- file.path(scratch, "plot.pdf")
pdf(picture)
drawn <- ream.plot()
ream.plot(most = 2)
rm(list = setdiff(ls(), c("picture", "drawn")))
drawn <- is.data.frame(drawn)
invisible(gc())
ream.plot()
invisible(dev.off())
stopifnot(drawn, file.size(picture) > 3000, is.null(ream.list()))
cat("ok\n")
