# %% [markdown]
# # A tiny lab
#
# Three exercises, ten points.

# %%
import sys

# %% [markdown] nbgrader={"grade_id": "about-double", "locked": true}
# ## 1. Double

# %% nbgrader={"grade_id": "double", "solution": true}
def double(x: int) -> int:
    """Twice x."""
    ### BEGIN SOLUTION
    secret_of_double = 2
    return secret_of_double * x
    ### END SOLUTION

# %% nbgrader={"grade_id": "test-double", "grade": true, "points": 2}
assert double(2) == 4, f"double(2) is 4, not {double(2)}"

# %% nbgrader={"grade_id": "hidden-double", "grade": true, "points": 1}
### BEGIN HIDDEN TESTS
hidden_of_double = [-1, 0, 7]
assert all(double(x) == x + x for x in hidden_of_double), "double is wrong for negative numbers"
### END HIDDEN TESTS

# %% [markdown]
# ## 2. Warn

# %% nbgrader={"grade_id": "warn", "solution": true}
def warn(text: str) -> int:
    """Write a text to stderr, and return its length."""
    ### BEGIN SOLUTION
    print(text, file=sys.stderr)
    return len(text)
    ### END SOLUTION

# %% nbgrader={"grade_id": "test-warn", "grade": true, "points": 3}
assert warn("be careful") == 10, f"'be careful' has 10 letters, not {warn('be careful')}"

# %% [markdown]
# ## 3. Count down

# %% nbgrader={"grade_id": "count", "solution": true}
def count_down(n: int) -> list[int]:
    """n, n-1, …, 1."""
    ### BEGIN SOLUTION
    return list(range(n, 0, -1))
    ### END SOLUTION

# %% nbgrader={"grade_id": "test-count", "grade": true, "points": 4}
assert count_down(3) == [3, 2, 1], f"count_down(3) is [3, 2, 1], not {count_down(3)}"
